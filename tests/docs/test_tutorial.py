"""The tutorial's code runs as printed."""

from __future__ import annotations

import json
import re
import shlex
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

from undrift.cli import command
from undrift.contract.parts import Weighting
from undrift.testing import Broken

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
SECOND = PAGE.with_name("tutorial-2.md")


def blocks(page: Path = PAGE) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """The names that the page's blocks define, executed one after another."""
    page = sys.modules["tutorial"] = types.ModuleType("tutorial")  # dataclasses look their module up
    try:
        for block in blocks():
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), vars(page))
        yield vars(page)
    finally:
        del sys.modules["tutorial"]


def test_the_page_runs_from_top_to_bottom(names, capsys):
    assert names["calm"].accuracy > 0.2
    assert names["calm"].summary["model_sha256"] != names["plain"].summary["model_sha256"]
    assert any("gives way" in notice for notice in names["together"].setup.method.notices)


def test_the_part_has_twenty_lines():
    first = blocks()[0]
    part = first[first.index("@dataclass") :].strip().splitlines()
    assert len([line for line in part if line.strip()]) <= 20


def test_an_undeclared_message_is_refused(names):
    @dataclass(frozen=True)
    class Loud(Weighting):
        def after_training(self, job, scratch, state):
            return state, {"moved": 1.0}

    with pytest.raises(Broken, match="does not declare"):
        names["check"](Loud())


def test_the_command_line_takes_it_from_a_file(names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another test
    (tmp_path / "mine.py").write_text(blocks()[0])
    texts = re.findall(r"undrift compare (.*) --seeds 3", PAGE.read_text())[0]
    methods = shlex.split(texts)
    assert methods == ["fedavg", "mine:Calm(power=0.5)", "flood+scaffold@mine:Calm"]
    code = command(["compare", *methods, "--clients", "5", "--rounds", "2", "--model", "mlp(8)", "--json", "--quiet"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert [row["method"] for row in json.loads(captured.out)["rows"]] == methods


def test_the_second_page_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    page = types.ModuleType("tutorial_2")
    monkeypatch.setitem(sys.modules, "tutorial_2", page)
    for block in blocks(SECOND):
        exec(compile(block, str(SECOND), "exec", dont_inherit=True), vars(page))
    both = vars(page)["both"]
    assert [part.key for part in both.setup.method.parts][:3] == [
        "objective.fedlc",
        "objective.lookahead",
        "personalize.agree",
    ]
    recalls = [json.loads(value) for (value,) in both.rows("SELECT value FROM notes WHERE name = 'recall'")]
    assert len(recalls) == 6
    assert all(len(recall) == 10 and all(0 <= value <= 1 for value in recall) for recall in recalls)
    assert "recall by class" in capsys.readouterr().out
