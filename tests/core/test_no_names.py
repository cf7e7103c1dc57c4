"""No method may need a line in the loop: no part's or method's name occurs in the code that runs all of them."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

import pytest

import undrift
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED

HOME = Path(undrift.__file__).parent
FILES = sorted([*(HOME / "round").glob("*.py"), *(HOME / "engine").glob("*.py")])
# Words that are a name and an ordinary word of code; a branch on one of these would show in review.
ORDINARY = {
    "local",
    "replace",
    "size",
    "mean",
    "head",
    "named",
    "uniform",
    "median",
    "momentum",
    "bound",
    "mix",
    "norms",
    "subset",
}


def words(source: str) -> set[str]:
    """Names and strings in code; comments and docstrings may speak of methods."""
    found: set[str] = set()
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token in zip([None, *tokens], tokens):
        fresh = before is None or before.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL, tokenize.DEDENT)
        if token.type == tokenize.NAME:
            found.add(token.string.lower())
        elif token.type == tokenize.STRING and not fresh:
            found |= set("".join(c if c.isalnum() else " " for c in token.string.lower()).split())
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_methods_name_occurs_in(path):
    names = set(PUBLISHED) | {name for table in part_tables().values() for name in table}
    assert words(path.read_text()) & (names - ORDINARY) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_part_is_imported_by(path):
    axes = ("sampling", "objectives", "personalize", "weighting", "combine", "server", "methods")
    for line in path.read_text().splitlines():
        if line.lstrip().startswith(("import ", "from ")):
            assert not any(f"undrift.{axis}" in line for axis in axes), line
