"""The house as a reader meets it: a sentence per folder, functions that fit a screen, no pointer to what is not here."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import undrift as ud

HOME = Path(ud.__file__).parent
REPO = HOME.parent.parent
LONGEST = 60
SHORT_ROOMS = ("core", "contract", "round", "experiment")
# (file, function) that may be longer, and why: at most three.
LONG: dict[tuple[str, str], str] = {}
PUBLIC = ("run", "compare", "resume", "load", "method", "federate")


def folders() -> list[Path]:
    return sorted(path.parent for path in HOME.rglob("__init__.py"))


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.relative_to(HOME.parent).as_posix())
def test_every_folder_says_what_lives_there(folder):
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert docstring is not None
    first = " ".join(docstring.split("\n\n")[0].split())
    assert len(first.split()) >= 4
    assert first.endswith(".")
    assert first.count(". ") <= 1, "one or two sentences"


def test_every_folder_with_code_is_a_package():
    with_code = {path.parent for path in HOME.rglob("*.py")}
    assert {folder for folder in with_code if not (folder / "__init__.py").exists()} == set()


def test_functions_fit_a_screen():
    long = {}
    for room in SHORT_ROOMS:
        for path in sorted((HOME / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                    lines = node.end_lineno - node.lineno + 1
                    if lines > LONGEST:
                        long[path.relative_to(HOME).as_posix(), node.name] = lines
    assert set(long) == set(LONG), long
    assert len(LONG) <= 3


def test_public_functions_stay_functions_whatever_is_imported():
    """A package of the same name would take a function's place as soon as it is imported."""
    script = f"""
import contextlib, importlib, pkgutil, types
import undrift as ud
before = {{name: getattr(ud, name) for name in {PUBLIC!r}}}
for module in pkgutil.walk_packages(ud.__path__, "undrift."):
    with contextlib.suppress(ImportError):  # an extra that is not installed
        importlib.import_module(module.name)
for name in {PUBLIC!r}:
    found = getattr(ud, name)
    assert isinstance(found, types.FunctionType), (name, found)
    assert found is before[name], name
print("same")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr


def test_a_public_function_can_be_called_twice_with_everything_imported():
    for module in pkgutil.walk_packages(ud.__path__, "undrift."):
        if module.name.startswith(("undrift.core", "undrift.contract", "undrift.round", "undrift.experiment")):
            importlib.import_module(module.name)
    for _ in range(2):
        federation = ud.federate("digits", clients=3)
        result = ud.run(ud.method("fedavg"), federation, rounds=1, epochs=1, model="logistic", out=False)
        assert 0 < result.accuracy < 1
    assert not isinstance(ud.run, types.ModuleType)


POINTERS = re.compile(r"\bDESIGN\b|\bCONTRACT\b|\bALGORITHMS\b|paper 00\d|\brows? [0-9]+\b")


def test_no_pointer_to_a_document_that_is_not_here():
    """`row 3` and the like count only where they point to a table of rules, not where a test speaks of a row of data."""
    wrong = []
    for folder in ("src", "tests", "docs"):
        for path in sorted((REPO / folder).rglob("*")):
            if (
                path.suffix in (".py", ".md", ".txt", ".toml", ".ipynb")
                and not {"_build", "generated"} & set(path.parts)
                and path != Path(__file__)
            ):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    if POINTERS.search(line):
                        wrong.append(f"{path.relative_to(REPO)}:{number}: {line.strip()[:100]}")
    assert wrong == []


def test_placeholders_of_queries_have_no_numbers():
    """Python 3.12 deprecates numbered ones with a sequence of values, and 3.14 refuses them."""
    numbered = re.compile(r"(=|<|>|,|\(|ORDER BY) ?\?\d")
    assert [str(path) for path in HOME.rglob("*.py") if numbered.search(path.read_text())] == []
