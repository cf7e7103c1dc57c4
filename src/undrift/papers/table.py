"""Tables of our numbers beside the printed ones, and the outcomes of the papers' claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.evaluate import views
from undrift.papers.papers import Claim, Preset, Value
from undrift.study.standings import difference

Row = dict[str, Any]
POINT = 1.0  # percentages: on one seed a smaller difference is taken as chance
QUARTER = 0.25  # other numbers: this share of the larger one (a std over fifteen rounds is known to a fifth)


def measured(query: views.Query, value: Value) -> list[float] | None:
    """[the number, its std over the window] of a run, in the units of the record; None if it was never evaluated."""
    values = views.curve(query, value.stage, value.data, value.metric).mean
    if not len(values):
        return None
    window = value.window if value.window >= 1 else max(1, round(value.window * len(values)))
    over = views.last(values, int(window)) if value.window else views.all_rounds(values)
    return [over.mean, over.std] if value.take == "mean" else [over.std, 0.0]


@dataclass(frozen=True)
class Outcome:
    """What the rows say about a claim."""

    claim: Claim
    outcome: str  # true, false, open
    why: str


def number(row: Row, value: str) -> float | None:
    pair = (row.get("values") or {}).get(value)
    return None if pair is None else pair[0]


def cell(rows: Sequence[Row], name: str, column: str, value: Value) -> str:
    """Mean ± std over seeds; on one seed ± the std over the window, as most papers print it."""
    here = [row for row in rows if (row["row"], row["column"]) == (name, column)]
    pairs = [row["values"][value.name] for row in here if (row.get("values") or {}).get(value.name)]
    if not pairs:
        return "failed" if any("failed" in row for row in here) else "—"
    means = [value.factor * mean for mean, _ in pairs]
    spread = np.std(means, ddof=1) if len(means) > 1 else value.factor * pairs[0][1]
    digits = 2 if value.factor == 100 else 4
    wide = len(means) > 1 or (value.window != 1 and value.take == "mean")
    return f"{np.mean(means):.{digits}f}" + (f" ± {spread:.{digits}f}" if wide else "")


def tables(preset: Preset, rows: Sequence[Row]) -> list[tuple[str, list[list[str]]]]:
    """One table per value: `ours / printed` in every cell that was run."""
    names = [row.name for row in preset.rows if any(result["row"] == row.name for result in rows)]
    columns = [column.name for column in preset.columns if any(row["column"] == column.name for row in rows)]
    named_tables = []
    for place, value in enumerate(preset.values):
        table = [["ours / printed", *columns]]
        for name in names:
            printed = [preset.printed(name, column, place) for column in columns]
            table.append([name, *(f"{cell(rows, name, c, value)} / {p}" for c, p in zip(columns, printed))])
        named_tables.append((value.name, table))
    return named_tables


def outcomes(preset: Preset, rows: Sequence[Row]) -> list[Outcome]:
    return [outcome(preset, claim, rows) for claim in preset.claims]


def outcome(preset: Preset, claim: Claim, rows: Sequence[Row]) -> Outcome:
    """Whether a claim is true, false or open.

    A column supports or contradicts the claim if the paired difference is larger than its noise: the confidence interval
    over seeds, or on a single seed one point (a quarter of the larger number if it is no percentage). A claim is true when
    enough columns support it, false when too many contradict it, otherwise open."""
    by_name = {value.name: value for value in preset.values}
    value = by_name[claim.value or preset.values[0].name]
    percent = value.factor == 100
    wanted = claim.columns or tuple(column.name for column in preset.columns)
    yes = no = 0
    shown, missing = list[str](), list[str]()
    for column in wanted:
        here = [{**row, "method": row["row"]} for row in rows if row["column"] == column]
        paired = difference(here, *claim.rows, lambda row: number(row, value.name))
        if paired is None:
            missing.append(column)
            continue
        mean, low, high = (value.factor * bound for bound in paired)
        digits = 2 if percent else 4
        interval = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if np.isfinite(low) else ""
        shown.append(f"{column} {mean:+.{digits}f}{interval}")
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
    if not shown:
        return Outcome(claim, "open", "not run")
    if missing:
        shown.append(f"not run: {', '.join(missing)}")
    need = claim.share * len(wanted)
    decided = "true" if yes >= need - 1e-9 else "false" if len(wanted) - no < need - 1e-9 else "open"
    return Outcome(claim, decided, "; ".join(shown))


def claim_table(decided: Sequence[Outcome]) -> list[list[str]]:
    return [["claim", "comes out", "difference"], *[[one.claim.sentence, one.outcome, one.why] for one in decided]]


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Of several results of a cell and seed the one with the most rounds, and of these the last."""
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = (row["row"], row["column"], row["seed"])
        if key not in best or row["rounds"] >= best[key]["rounds"]:
            best[key] = dict(row)
    return list(best.values())
