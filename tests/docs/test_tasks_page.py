"""docs/tasks.md runs as printed."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest

from undrift.tasks import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_runs_from_top_to_bottom(blocks, capsys):
    page = sys.modules["tasks_page"] = types.ModuleType("tasks_page")
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec", dont_inherit=True), vars(page))
    finally:
        del sys.modules["tasks_page"]
    stock = page.stock
    assert stock.summary["headline"]["name"] == "pinball"
    assert stock.curve().mean[-1] < stock.curve().mean[0]
    assert 0.6 < stock.summary["stages"]["G"]["below"] < 0.95  # about q of the values lie below the prediction
    assert "L1 pinball(L)" in capsys.readouterr().out


def test_the_task_has_twenty_lines(blocks):
    last = blocks[-1]
    task = last[last.index("@dataclass") : last.index("def sales")].strip().splitlines()
    assert len([line for line in task if line.strip()]) <= 20


def test_the_page_has_every_task():
    assert all(f"`{name}" in PAGE.read_text() for name in TASKS)


def test_what_the_examples_printed_is_rendered_and_not_typed():
    spec = importlib.util.spec_from_file_location("make_tasks", PAGE.with_name("make_tasks.py"))
    make_tasks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_tasks)
    page = PAGE.read_text()
    assert make_tasks.rendered(page) == page, "run .venv/bin/python docs/make_tasks.py"
    assert "RMSE" in page.partition("<!-- diabetes -->")[2].partition("<!-- end")[0]
