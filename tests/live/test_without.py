"""Without the extra, one sentence says how to get it."""

from __future__ import annotations

import importlib.util

from undrift.cli import command


def test_without_the_extra_one_sentence(monkeypatch, capsys, tmp_path):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "starlette" else real(name, *a))
    assert command(["watch", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "undrift: the live page needs Starlette and Uvicorn; install them with pip install 'undrift[live]'\n"
    )
