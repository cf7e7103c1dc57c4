"""Imports go one way: a room knows the rooms to its left, never those to its right."""

from __future__ import annotations

import ast
from pathlib import Path

import undrift

HOME = Path(undrift.__file__).parent
# From left to right. Rooms on one level may import each other.
LEVELS = (
    ("core",),
    ("contract",),
    ("methods", "tasks", "data", "models", "federation"),
    ("store",),
    ("round", "evaluate"),
    ("engine",),
    ("experiment",),
    ("testing", "study"),
    ("papers", "report"),
    ("advice",),
    ("deploy", "bench", "live", "cli"),
)
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
# (file, room it may import although that lies to its right): why.
EXCEPTIONS = {
    (
        "federation/environment/faults.py",
        "round",
    ): "a fault changes orders and replies on their way, and is typed by them",
    ("experiment/result.py", "report"): "result.plot() and result.traces() draw, and load the drawing code when called",
    ("study/compare.py", "report"): "Compared.report() writes a page, and loads the page code when called",
    ("experiment/resume.py", "deploy"): "ud.load opens a deployment's folders too, and loads its code only then",
}


def imported(path: Path) -> set[str]:
    """Every undrift module a file imports: at the top, inside functions, under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("undrift.") for name in found if name.startswith("undrift.")}


def edges() -> list[tuple[str, str]]:
    """(file, room it imports), for all files in rooms."""
    found = []
    for path in sorted(HOME.rglob("*.py")):
        file = path.relative_to(HOME).as_posix()
        if "/" in file:
            found += [(file, name.split(".")[0]) for name in sorted(imported(path))]
    return sorted(set(found))


def test_every_room_is_on_a_level():
    rooms = {path.name for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(LEVEL)


def test_imports_go_one_way():
    wrong = {(file, room) for file, room in edges() if room in LEVEL and LEVEL[room] > LEVEL[file.split("/")[0]]}
    assert wrong - set(EXCEPTIONS) == set()
    assert set(EXCEPTIONS) - wrong == set(), "an exception that is not needed any more"
    assert all(EXCEPTIONS.values()), "every exception says why"
