"""Renders the results of `benchmarks/advisor.py` into docs/advise.md: `python docs/make_advisor.py`. A test compares."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from undrift.experiment.tables import markdown_table
from undrift.study.verdict import signed

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "advise.md"
Line = dict[str, Any]


def lines(name: str) -> list[Line]:
    return [json.loads(line) for line in (DOCS / "results" / f"{name}.jsonl").read_text().splitlines()]


def answers(name: str = "advisor") -> str:
    """A row per federation, and what they come to."""
    found = lines(f"{name}-answers")
    table = [["federation", "the advisor says", "best of 45", "against FedAvg, fresh seeds", "regret", "cost"]]
    for line in found:
        scale = 100 if line["headline"] != "rmse" else 1
        estimate, low, high = (signed(scale * number, 1) for number in line["difference"])
        said = f"`{line['recommended']}`" if line["clear"] else f"no clear winner: `{line['recommended']}`"
        gap = f"{estimate} [{low}, {high}]" + ("" if line["clear"] else f" (`{line['challenger']}`)")
        cost = f"{100 * line['share']:.0f} %"
        table.append([line["federation"], said, f"`{line['best']}`", gap, signed(line["regret"], 1), cost])
    regrets, shares = (np.array([line[key] for line in found]) for key in ("regret", "share"))
    clipped = np.maximum(regrets, 0)
    first = found[0]
    return (
        f"{markdown_table(table, words=(0, 1, 2, 3))}\n\n"
        f"Mean regret {regrets.mean():.2f} points (negative ones counted as zero: {clipped.mean():.2f}), worst {regrets.max():.2f}; "
        f"mean cost {100 * shares.mean():.0f} % of the exhaustive search, worst {100 * shares.max():.0f} %. "
        f"{len(lines(name)):,} exhaustive runs. Regret on three fresh seeds. {first['machine']}, {first['date']}."
    )


def blind() -> str:
    return answers("advisor-blind")


def alike() -> str:
    """How often FedAvg was declared better than itself."""
    found = lines("advisor-alike")
    winners = sum(line["winner"] for line in found)
    return (
        f"FedAvg against seven copies of itself with other random streams, on {len(found)} federations: a winner was declared in "
        f"{winners}."
    )


def page() -> str:
    """The page with its results made anew, each between `<!-- advisor: NAME -->` and `<!-- end -->`."""
    made = {"answers": answers, "blind": blind, "alike": alike}
    return re.sub(
        r"<!-- advisor: (\w+) -->.*?<!-- end -->",
        lambda found: f"<!-- advisor: {found[1]} -->\n{made[found[1]]()}\n<!-- end -->",
        PAGE.read_text(),
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(page())
