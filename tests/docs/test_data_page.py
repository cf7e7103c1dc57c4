"""The code of docs/data.md runs as printed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def execute(block: str, names: dict) -> None:
    exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))


def test_own_data_become_federations():
    names = {"__name__": "page"}
    execute(blocks()[2], names)
    assert names["federation"].clients == 5
    assert names["result"].summary["rounds"] == 2


@pytest.mark.data
def test_pacs_by_domain_with_your_own_network_takes_six_lines(capsys):
    if not os.environ.get("UNDRIFT_DATA"):
        pytest.skip("UNDRIFT_DATA is not set to a folder with the real data sets")
    network, six = blocks()[:2]
    assert len([line for line in six.splitlines() if line.strip()]) == 6
    names = {"__name__": "page"}
    execute(network, names)
    execute(six, names)
    printed = capsys.readouterr().out
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        assert re.search(rf"'{domain}': '\d+\.\d%'", printed)
    assert names["result"].accuracy > 0.25  # seven classes, three rounds: above chance
    assert type(names["result"].model).__name__ == "Net"
