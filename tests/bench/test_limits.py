"""The table of limits is what the command wrote."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "limits.py"


def test_the_table_in_the_docs_is_rendered_from_the_results():
    spec = importlib.util.spec_from_file_location("limits", SCRIPT)
    limits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(limits)
    kept = json.loads(limits.RESULTS.read_text())
    inside = limits.PAGE.read_text().partition(limits.BEGIN)[2].partition(limits.END)[0]
    assert inside.strip() == limits.table(kept)
    assert set(kept) <= set(limits.LIMITS)
