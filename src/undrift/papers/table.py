"""Ours beside the printed numbers, and what became of the papers' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.evaluate import views
from undrift.papers.papers import Claim, Preset, Value
from undrift.study.standings import difference

Row = dict[str, Any]
Rows = Any  # (query, values) -> rows of a record
POINT = 1.0  # a difference below it on one seed is chance, where the numbers are percentages
QUARTER = 0.25  # elsewhere: below this share of the larger number (a swing over fifteen rounds is known to a fifth)


def read_off(rows: Rows, value: Value) -> list[float] | None:
    """[the number, its std over the window] of a run, in the record's units; None where it was never judged."""
    values = views.curve(rows, value.stage, value.data, value.metric).mean
    if not len(values):
        return None
    window = value.window if value.window >= 1 else max(1, round(value.window * len(values)))
    found = views.last(values, int(window)) if value.window else views.all_rounds(values)
    return [found.mean, found.std] if value.take == "mean" else [found.std, 0.0]


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    outcome: str  # true, false, open
    why: str


def number(row: Row, value: str) -> float | None:
    found = (row.get("values") or {}).get(value)
    return None if found is None else found[0]


def cell(rows: Sequence[Row], line: str, column: str, value: Value) -> str:
    """Mean ± std over seeds; on one seed ± the std over the window, as most papers print it."""
    found = [row["values"][value.name] for row in rows if (row["row"], row["column"]) == (line, column)
             and (row.get("values") or {}).get(value.name)]  # fmt: skip
    if not found:
        failed = any("failed" in row for row in rows if (row["row"], row["column"]) == (line, column))
        return "failed" if failed else "—"
    means = [value.factor * one[0] for one in found]
    spread = np.std(means, ddof=1) if len(means) > 1 else value.factor * found[0][1]
    digits = 2 if value.factor == 100 else 4
    wide = len(means) > 1 or (value.window != 1 and value.take == "mean")
    return f"{np.mean(means):.{digits}f}" + (f" ± {spread:.{digits}f}" if wide else "")


def tables(preset: Preset, rows: Sequence[Row]) -> list[tuple[str, list[list[str]]]]:
    """One table per value: `ours / printed` in every cell that was run."""
    lines = [line.name for line in preset.lines if any(row["row"] == line.name for row in rows)]
    columns = [column.name for column in preset.columns if any(row["column"] == column.name for row in rows)]
    found = []
    for place, value in enumerate(preset.values):
        table = [["ours / printed", *columns]]
        for line in lines:
            printed = [preset.printed(line, column, place) for column in columns]
            table.append([line, *(f"{cell(rows, line, c, value)} / {p}" for c, p in zip(columns, printed))])
        found.append((value.name, table))
    return found


def verdicts(preset: Preset, rows: Sequence[Row]) -> list[Verdict]:
    return [verdict(preset, claim, rows) for claim in preset.claims]


def verdict(preset: Preset, claim: Claim, rows: Sequence[Row]) -> Verdict:
    """A cell says yes or no where the paired difference is clear of its noise (the confidence interval over seeds; on a
    single seed a point, or a quarter of the larger number where it is no percentage); a claim is true when enough cells
    say yes, false when enough can no longer say it."""
    by_name = {value.name: value for value in preset.values}
    value = by_name[claim.value or preset.values[0].name]
    percent = value.factor == 100
    wanted = claim.columns or tuple(column.name for column in preset.columns)
    yes = no = 0
    seen, missing = list[str](), list[str]()
    for column in wanted:
        here = [{**row, "method": row["row"]} for row in rows if row["column"] == column]
        found = difference(here, *claim.rows, lambda row: number(row, value.name))
        if found is None:
            missing.append(column)
            continue
        mean, low, high = (value.factor * one for one in found)
        digits = 2 if percent else 4
        interval = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else ""
        seen.append(f"{column} {mean:+.{digits}f}{interval}")
        if not interval:
            larger = max(abs(number(row, value.name) or 0.0) for row in here if row["row"] in claim.rows)
            noise = POINT if percent else QUARTER * value.factor * larger
            low, high = mean - noise, mean + noise
        if claim.kind == "near":
            yes, no = yes + (abs(mean) <= claim.within), no + (abs(mean) > claim.within + (high - low) / 2)
        elif claim.kind == "above":
            yes, no = yes + (low > 0), no + (high < 0)
        else:
            yes, no = yes + (high < 0), no + (low > 0)
    if not seen:
        return Verdict(claim, "open", "not run")
    if missing:
        seen.append(f"not run: {', '.join(missing)}")
    need = claim.share * len(wanted)
    outcome = "true" if yes >= need - 1e-9 else "false" if len(wanted) - no < need - 1e-9 else "open"
    return Verdict(claim, outcome, "; ".join(seen))


def claim_table(found: Sequence[Verdict]) -> list[list[str]]:
    return [["claim", "comes out", "difference"], *[[v.claim.sentence, v.outcome, v.why] for v in found]]


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Of several results of the same cell the one with the most rounds; the later one where they are equal."""
    kept: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = (row["row"], row["column"], row["seed"])
        if key not in kept or row["rounds"] >= kept[key]["rounds"]:
            kept[key] = dict(row)
    return list(kept.values())
