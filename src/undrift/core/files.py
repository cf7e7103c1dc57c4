"""Read TOML and JSON files. Whatever cannot be read is refused in one sentence that names the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.words import clipped

LONGEST = 400  # digits of an integer: more do not fit in a float, and Python refuses to print 4,300


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    table: dict[str, Any] = parsed(path, tomllib.loads, "TOML")
    return table


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return parsed(path, load_json, "JSON")


def read_lines(path: Path) -> list[Any]:
    """The values in a file with one JSON value per line. A line that a kill cut short is skipped."""
    values = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                values.append(load_json(line))
            except (ValueError, RecursionError) as error:
                if is_cut(error, line):
                    continue
                raise BadRequest(f"line {number} of {path} is not JSON: {clipped(str(error))}; remove it") from None
    return values


def is_cut(error: Exception, line: str) -> bool:
    """Whether the beginning of a JSON line is there, and its end is missing."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= len(line.rstrip()) or error.msg.startswith("Unterminated string")


def load_json(text: str) -> Any:
    """JSON as its standard has it: without NaN and Infinity, and without integers that no number can hold."""
    return json.loads(text, parse_constant=refuse, parse_int=lambda d: int(d) if len(d) <= LONGEST else refuse(d))


def refuse(word: str) -> Any:
    raise ValueError(f"{clipped(word)} is not a number that can be used")


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadRequest(f"there is no file {path}; give the path of one") from None
    except IsADirectoryError:
        raise BadRequest(f"{path} is a folder; give the file in it") from None
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{path} is not a text in UTF-8: {error.reason} at byte {error.start}; save it as one"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise BadRequest(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; give another path"
        ) from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The table in the text of a TOML file."""
    table: dict[str, Any] = parsed_text(text, path, tomllib.loads, "TOML")
    return table


def parsed(path: Path, parse: Callable[[str], Any], what: str) -> Any:
    return parsed_text(read_text(path), path, parse, what)


def parsed_text(text: str, path: Path, parse: Callable[[str], Any], what: str) -> Any:
    try:
        return parse(text)
    except RecursionError:
        raise BadRequest(f"{path} is nested too deeply for a {what} file; write it flat") from None
    except ValueError as error:  # of the parser, or of an integer that is too long
        raise BadRequest(f"{path} is not a {what} file: {clipped(str(error), 160)}; correct it") from None
