"""docs/privacy.md is rendered: its tables are what the methods and the result file say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def make_privacy():
    spec = importlib.util.spec_from_file_location("make_privacy", DOCS / "make_privacy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_the_code_and_the_results_say(make_privacy):
    page = (DOCS / "privacy.md").read_text()
    assert make_privacy.rendered(page) == page, "run .venv/bin/python docs/make_privacy.py"


def test_another_result_gives_another_page(make_privacy, tmp_path, monkeypatch):
    changed = tmp_path / "privacy.jsonl"
    text = make_privacy.RESULTS.read_text()
    first = text.partition('"accuracy": ')[2].partition(",")[0]
    changed.write_text(text.replace(f'"accuracy": {first}', '"accuracy": 0.123', 1))
    monkeypatch.setattr(make_privacy, "RESULTS", changed)
    assert make_privacy.example_table() not in (DOCS / "privacy.md").read_text()
