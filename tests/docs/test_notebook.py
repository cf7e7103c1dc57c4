"""The notebook's cells run from top to bottom."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first-steps.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = types.ModuleType("first_steps")
    monkeypatch.setitem(sys.modules, "first_steps", page)  # dataclasses look their module up
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec", dont_inherit=True), vars(page))
    rows = page.compared.rows
    assert len(rows) == 12
    assert not any("failed" in row for row in rows)
    assert Path("runs/first-steps/index.html").exists()
    assert "G − fedavg" in capsys.readouterr().out
