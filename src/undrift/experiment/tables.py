"""Tables of results, in a terminal and as Markdown. Their headers say which accuracy a column has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

COLUMNS = (
    ("method", "method"),
    ("G", "global model, whole test set"),
    ("L1 Acc(L)", "on receipt, own test slice"),
    ("L1 Acc(G)", "on receipt, whole test set"),
    ("L2 Acc(L)", "after training, own test slice"),
    ("L2 Acc(G)", "after training, whole test set"),
    ("worst 10 %", "L1 Acc(L) of the worst tenth of clients"),
    ("s", "seconds"),
)


def stage_table(summaries: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A header, and one row per run."""
    rows = [[short for short, _ in COLUMNS]]
    for summary in summaries:
        l1, l2 = (summary["stages"][stage] or {} for stage in ("L1", "L2"))
        means = [stage.get(data, {}).get("mean") for stage in (l1, l2) for data in ("acc_local", "acc_global")]
        accuracies = [summary["accuracy"], *means, l1.get("acc_local", {}).get("worst_decile")]
        rows.append([summary["method"], *map(percent, accuracies), f"{summary['seconds']:.1f}"])
    return rows


def percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.2f}"


def legend() -> str:
    """The meaning of each column, one per line."""
    return "\n".join(f"{short}: {long}" for short, long in COLUMNS[1:-1])


def site_table(rows: Sequence[tuple[str, dict[str, dict[str, float]]]], stage: str = "") -> list[list[str]]:
    """One line per named client, one column per (heading, sites): the accuracy on its own test slice, in `stage` or in
    both stages. Empty if no client has a name."""
    names = list(dict.fromkeys(name for _, sites in rows for name in sites))
    if not names:
        return []
    stages = [stage] if stage else ["L1", "L2"]
    columns = [
        (f"{heading} {one}".strip() if not stage else heading, sites, one) for heading, sites in rows for one in stages
    ]
    head = ["client", *(heading for heading, _, _ in columns)]
    lines = [
        [name, *(percent(sites.get(name, {}).get(one)) for _, sites, one in columns)] for name in names[:MOST_SITES]
    ]
    more = len(names) - MOST_SITES
    return [head, *lines] + ([[f"… {more} more", *[""] * len(columns)]] if more > 0 else [])


MOST_SITES = 50


def unseen_line(summary: dict[str, Any]) -> str:
    """The accuracy of clients that never trained, in one sentence; empty if there are none."""
    stages = summary.get("unseen")
    if not stages:
        return ""
    global_model, tuned = ((stages.get(stage) or {}).get("mean") for stage in ("G", "L2"))
    count = max(stage["clients"] for stage in stages.values())
    return (
        f"{count} unseen client{'s' * (count > 1)}, own test slice: {percent(global_model)} with the global model, "
        f"{percent(tuned)} after fine-tuning it"
    )


def privacy_lines(summary: dict[str, Any]) -> list[str]:
    """What ε says and what it does not cover; nothing where no privacy is counted."""
    statement = summary.get("privacy")
    if not statement:
        return []
    spent = "∞" if statement["epsilon"] is None else f"{statement['epsilon']:.3g}"
    seeded = "; the noise is seeded, which protects nobody" if statement["seeded"] else ""
    return [
        f"ε = {spent} at δ = {statement['delta']:g} ({statement['relation']}; assumed: {statement['assumed']}){seeded}",
        *(f"  not covered: {name}" for name in statement["uncovered"]),
    ]


def text_table(rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """A table for a terminal. Columns of words (by index) are aligned left, those of numbers right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if i in words else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "  ".join("─" * w for w in widths), *lines[1:]])


def markdown_table(rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """The same table as Markdown."""
    head, *lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---" if i in words else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *lines))
