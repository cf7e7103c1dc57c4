"""Renders the tables of docs/advise.md from docs/results/diagnosis.jsonl: `python docs/make_advise.py`.

`benchmarks/diagnosis.py` writes that file. A test renders the page again and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from undrift.experiment.tables import markdown_table

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "advise.md"
KEPT = DOCS / "results" / "diagnosis.jsonl"
PARTITIONS = ("iid", "dirichlet(0.5)", "dirichlet(0.1)", "pathological(1)")
POINTS = 5.0  # an estimate of wrong labels within so many is called right


def kept(measure: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, KEPT.read_text().splitlines()) if line["measure"] == measure]


def groups(lines: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(tuple(line[key] for key in keys), []).append(line)
    return found


def error(line: dict[str, Any]) -> float:
    """In points; where nothing is reported, the truth is what is missed."""
    return 100 * abs((line["found_wrong_labels"] or 0.0) - line["wrong_labels"])


def wrong_labels() -> str:
    """A row per data set, partition and place of the noise: what was found at every simulated share, in percent."""
    lines = kept("wrong labels")
    rates = sorted({line["rate"] for line in lines})
    table = [["data", "partition", "noise", *(f"{100 * rate:.0f} %" for rate in rates), "largest error"]]
    found = groups(lines, "data", "partition", "where")
    for data, partition, where in sorted(found, key=lambda key: (key[0], PARTITIONS.index(key[1]), key[2] != "spread")):
        rows = found[data, partition, where]
        by_rate = groups(rows, "rate")
        cells = [shown(by_rate.get((rate,), [])) for rate in rates]
        table.append([data, f"`{partition}`", where, *cells, largest(rows)])
    told = [line for line in lines if not line.get("unknown")]
    right = sum(error(line) <= POINTS for line in told)
    clean = [line["found_wrong_labels"] or 0.0 for line in lines if not line["rate"]]
    return (
        f"{markdown_table(table, words=range(3))}\n\n"
        f"Percent found, and in brackets the truth where it is another number than the heading says (noise of whole clients "
        f"under unequal sizes); means of {about(lines)}. Of {len(lines)} cases {len(lines) - len(told)} say that the share cannot be "
        f"known (*unknown*, at one or more seeds). Of the {len(told)} estimates of the others {right} are within {POINTS:.0f} points, and "
        f"the largest error is {max(map(error, told)):.1f}. On clean labels the largest share found is {100 * max(clean):.1f} %."
    )


def largest(rows: list[dict[str, Any]]) -> str:
    errors = [error(row) for row in rows if not row.get("unknown")]
    return f"{max(errors):.1f}" if errors else "—"


def shown(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "—"
    told = [row for row in rows if not row.get("unknown")]
    if not told:
        return "unknown"
    found = mean(100 * (row["found_wrong_labels"] or 0.0) for row in told)
    truth, rate = mean(100 * row["wrong_labels"] for row in told), rows[0]["rate"]
    return (
        "unknown, " * (len(told) < len(rows))
        + f"{found:.1f}"
        + (f" ({truth:.1f})" if abs(truth - 100 * rate) >= 0.5 else "")
    )


def feature_skew() -> str:
    """A row per data set and transform: the measure at five strengths, weakest first."""
    lines = kept("feature skew")
    table = [["data", "transform, strengths", *(f"{place}." for place in range(1, 6)), "in order"]]
    for (data, transform), rows in groups(lines, "data", "transform").items():
        by_strength = groups(rows, "strength")
        strengths = sorted(strength for (strength,) in by_strength)
        means = [mean(row["found_feature_skew"] for row in by_strength[strength,]) for strength in strengths]
        seeds = groups(rows, "seed")
        ordered = sum(in_order(own) for own in seeds.values())
        cells = [f"{value:.2f}" for value in means]
        words = f"{'yes' if means == sorted(means) else 'no'}; {ordered} of {len(seeds)} seeds"
        table.append([data, f"{transform}: {', '.join(f'{one:g}' for one in strengths)}", *cells, words])
    noise = max(line["found_wrong_labels"] or 0.0 for line in lines)
    clean = max(line["found_feature_skew"] or 0.0 for line in kept("wrong labels") if not line["rate"])
    return (
        f"{markdown_table(table, words=range(2))}\n\n"
        f"Means of {about(lines)}; every second client's images are transformed, so that half of all pairs look alike. "
        f"Without a transform and without noise the largest value is {clean:.2f}. The largest share of wrong "
        f"labels that a transform was taken for is {100 * noise:.1f} %."
    )


def in_order(rows: list[dict[str, Any]]) -> bool:
    values = [row["found_feature_skew"] for row in sorted(rows, key=lambda row: row["strength"])]
    return values == sorted(values)


def about(lines: list[dict[str, Any]]) -> str:
    by_data = {data: len({line["seed"] for line in own}) for (data,), own in sorted(groups(lines, "data").items())}
    dates = " and ".join(sorted({line["date"] for line in lines}))
    seeds = " and ".join(f"{count} seed{'s' * (count > 1)} ({data})" for data, count in by_data.items())
    return f"{seeds}, {lines[0]['clients']} clients, {lines[0]['machine']}, {dates}"


TABLES = {"wrong labels": wrong_labels, "feature skew": feature_skew}


def page() -> str:
    """The page with its tables made anew, each between `<!-- table: NAME -->` and `<!-- end -->`."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- table: {found.group(1)} -->\n{TABLES[found.group(1)]()}\n<!-- end -->"

    return re.sub(r"<!-- table: ([a-z ]+) -->.*?<!-- end -->", made, PAGE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page())
