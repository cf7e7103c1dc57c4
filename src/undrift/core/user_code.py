"""The user's own code, named `package:name(key=value)`: what a name stands for, and the files it comes from."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.references import answer, resolve
from undrift.core.text import Call, signature_of, spell


def user_function(what: str, call: Call) -> Any:
    """A function of the user's own, with the given options: `mine:focal(gamma=2)`. If what is named needs no more
    arguments (a class, a function that makes a function), it is called, and what it returns counts."""
    found = resolve(call.name, what)
    if call.args:
        raise BadRequest(f"in {spell(call)}: give values of the {what} by their names, as in {call.name}(key=value)")
    if not callable(found):
        raise BadRequest(f"the {what} {call.name} is a {type(found).__name__}, not a function; name a function")
    parameters = signature_of(call.name, found, call.options).parameters.values()
    required = [
        p.name for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in call.options
    ]  # fmt: skip
    if not required and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return answer(what, functools.partial(found, **call.options), callable, "a function")
    if not call.options:
        return found
    with_options = functools.partial(found, **call.options)
    with_options.__name__ = spell(call).partition(":")[2]  # type: ignore[attr-defined]
    return with_options


def address(kind: Any) -> str | None:
    """`package:name` of a class or function that can be imported under it, else None."""
    module, name = sys.modules.get(kind.__module__), kind.__qualname__
    if (
        kind.__module__ == "__main__"
        or not getattr(module, "__file__", None)
        or getattr(module, name, None) is not kind
    ):
        return None
    return f"{kind.__module__}:{name}"


# ---- files ---------------------------------------------------------------------------------------------------------


def user_files(names: Iterable[str]) -> dict[str, Path]:
    """The files of these `package:name`s and of what they import, by their path from the folder that Python finds them
    in. Installed packages are left out."""
    found: dict[str, Path] = {}
    waiting = [name.partition(":")[0] for name in names]
    while waiting:
        module = waiting.pop()
        for package in [module.rsplit(".", n)[0] for n in range(module.count("."), -1, -1)]:  # a.b.c: a, a.b, a.b.c
            file = module_file(package)
            if file is None or is_installed(file):
                continue
            place = Path(*package.split("."))
            key = (place / "__init__.py" if file.name == "__init__.py" else place.with_suffix(".py")).as_posix()
            if key not in found:
                found[key] = file
                waiting += imports_of(file, package)
    return dict(sorted(found.items()))


def module_file(module: str) -> Path | None:
    """The Python file of a module, without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):  # not there, made by hand, or its package is no package
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def is_installed(file: Path) -> bool:
    """Whether a file belongs to Python, to an installed package, or to Undrift."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    ours = str(Path(__file__).resolve().parents[1])
    return any(file.resolve().is_relative_to(Path(place).resolve()) for place in (*places, ours))


def imports_of(file: Path, module: str) -> list[str]:
    """The modules that a file imports, by their full names."""
    try:
        tree = ast.parse(file.read_text())
    except (SyntaxError, UnicodeDecodeError):
        return []
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package if node.level else ""
            base = ".".join(part for part in (above, node.module or "") if part)
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
    return found


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
