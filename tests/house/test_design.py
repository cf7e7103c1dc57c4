"""docs/design.md is true of the code: every file and function of the way of one client's update exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import undrift

HOME = Path(undrift.__file__).parent
PAGE = HOME.parent.parent / "docs" / "design.md"
MOST = 25


def stations() -> list[tuple[str, str]]:
    """(file, function) of the table, in order."""
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|", PAGE.read_text(), re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    return [(file, function) for _, file, function in rows]


def names(file: str) -> set[str]:
    """Functions, classes and methods that a file defines."""
    found = set()
    for node in ast.parse((HOME / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
            found |= {node.name, *methods}
    return found


def test_every_station_exists():
    wrong = [(file, function) for file, function in stations() if function not in names(file)]
    assert wrong == []


def test_the_way_is_short_and_visits_no_file_twice():
    files = [file for file, _ in stations()]
    assert 15 <= len(files) <= MOST
    assert len(set(files)) == len(files)


def test_files_named_elsewhere_on_the_page_exist():
    rooms = {path.name for path in HOME.iterdir() if path.is_dir()}
    for file in set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE.read_text())):
        where = HOME if file.split("/")[0] in rooms else HOME.parent.parent
        assert (where / file).is_file(), file


def test_the_page_draws_every_room():
    drawing = PAGE.read_text().split("```")[3]
    rooms = {path.name for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {room for room in rooms if f"{room}/" not in drawing} == set()
