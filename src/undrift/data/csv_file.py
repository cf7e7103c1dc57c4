"""A table in a .csv file: one row per sample, the first line names the columns."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.words import in_short

MARKS = ",;\t"  # between the cells, whichever the first line has most of


def csv_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns by name: int64, float64 or text, whatever fits all cells. An empty cell of numbers is NaN."""
    lines = read_lines(path)
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    if len(set(header)) < len(header) or not all(header):
        twice = next((name for name in header if header.count(name) > 1), "")
        raise BadRequest(
            f"{path} names the column {twice!r} twice or not at all in its first line; name each column once"
        )
    if not rows:
        raise BadRequest(f"{path} has no rows below its first line; give at least one sample")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise BadRequest(
                f"line {number} of {path} has {len(row)} cells, the first line {len(header)}; give one per column"
            )
    return {name: values([row[place].strip() for row in rows]) for place, name in enumerate(header)}


def read_lines(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise BadRequest(
            f"there is no file {path}; give the path of a .csv with the names of its columns in the first line"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            lines = [line for line in csv.reader(file, delimiter=max(MARKS, key=first.count)) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f"cannot read {path} as .csv: {in_short(error)}; save it as UTF-8 text") from None
    if not lines:
        raise BadRequest(f"{path} is empty; its first line names the columns")
    return lines


def values(cells: list[str]) -> np.ndarray:
    for kind in (np.int64, np.float64):
        try:
            return np.array([cell if kind is np.int64 or cell else "nan" for cell in cells]).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(cells)
