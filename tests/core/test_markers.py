"""`.ci/run` looks for three markers in the folders of their names only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["browser", "ray", "flower"])
def test_a_marker_with_a_folder_is_nowhere_else(name):
    marked = {path for path in TESTS.rglob("*.py") if re.search(rf"\bmark\.{name}\b", path.read_text())}
    assert marked
    assert {path.relative_to(TESTS).parts[0] for path in marked} == {name}
