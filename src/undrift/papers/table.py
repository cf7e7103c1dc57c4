"""Tables of our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undrift.papers.papers import Preset
from undrift.papers.values import Value

Row = dict[str, Any]


def cell(rows: Sequence[Row], name: str, column: str, value: Value) -> str:
    """Mean ± std over seeds; on one seed ± the std over the window, as most papers print it."""
    here = [row for row in rows if (row["row"], row["column"]) == (name, column)]
    pairs = [row["values"][value.name] for row in here if (row.get("values") or {}).get(value.name)]
    if not pairs:
        return "failed" if any("failed" in row for row in here) else "—"
    means = [value.factor * mean for mean, _ in pairs]
    spread = np.std(means, ddof=1) if len(means) > 1 else value.factor * pairs[0][1]
    digits = 2 if value.factor == 100 else 4
    wide = len(means) > 1 or (spread > 0 and value.take == "mean")
    return f"{np.mean(means):.{digits}f}" + (f" ± {spread:.{digits}f}" if wide else "")


def tables(preset: Preset, rows: Sequence[Row]) -> list[tuple[str, list[list[str]]]]:
    """One table per value: `ours / printed` in every cell that was run, or ours alone where the paper prints nothing of this
    value. None where nothing was run."""
    if not rows:
        return []
    names = [row.name for row in preset.rows if any(result["row"] == row.name for result in rows)]
    columns = [column.name for column in preset.columns if any(row["column"] == column.name for row in rows)]
    named_tables = []
    for place, value in enumerate(preset.values):
        printed = {name: [preset.printed(name, column, place) for column in columns] for name in names}
        some = any(number != "—" for numbers in printed.values() for number in numbers)
        table = [["ours / printed" if some else "ours", *columns]]
        for name in names:
            ours = [cell(rows, name, column, value) for column in columns]
            table.append([name, *(f"{o} / {p}" if some else o for o, p in zip(ours, printed[name]))])
        named_tables.append((value.name, table))
    return named_tables


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Of several results of a cell and seed the one with the most rounds, and of these the last."""
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = (row["row"], row["column"], row["seed"])
        if key not in best or row["rounds"] >= best[key]["rounds"]:
            best[key] = dict(row)
    return list(best.values())
