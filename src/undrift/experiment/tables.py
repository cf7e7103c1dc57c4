"""Tables of results, in a terminal and as Markdown. Their headers say which number a column has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from undrift.core.headline import ACCURACY, Headline


def columns(title: str) -> tuple[tuple[str, str], ...]:
    """(short, long) names of the columns, named after the headline."""
    return (
        ("method", "method"),
        ("G", "global model, whole test set"),
        (f"L1 {title}(L)", "on receipt, own test slice"),
        (f"L1 {title}(G)", "on receipt, whole test set"),
        (f"L2 {title}(L)", "after training, own test slice"),
        (f"L2 {title}(G)", "after training, whole test set"),
        ("worst 10 %", f"L1 {title}(L) of the worst tenth of clients"),
        ("s", "seconds"),
    )


def headline_of(rows: Sequence[Mapping[str, Any]]) -> Headline:
    """The headline of the runs of a table: that of the first one that says it."""
    return next((Headline.of(row) for row in rows if row.get("headline")), ACCURACY)


def headline_value(row: Mapping[str, Any]) -> float | None:
    """The headline of the global model; accuracy in rows that were written before there were tasks."""
    found = row.get("headline")
    value: float | None = found["value"] if found else row.get("accuracy")
    return value


def stage_table(summaries: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A header, and one row per run."""
    headline = headline_of(summaries)
    rows = [[short for short, _ in columns(headline.title)]]
    for summary in summaries:
        l1, l2 = (summary["stages"][stage] or {} for stage in ("L1", "L2"))
        means = [stage.get(data, {}).get("mean") for stage in (l1, l2) for data in ("acc_local", "acc_global")]
        numbers = [headline_value(summary), *means, l1.get("acc_local", {}).get("worst_decile")]
        rows.append([summary["method"], *map(headline.show, numbers), f"{summary['seconds']:.1f}"])
    return rows


def legend(headline: Headline = ACCURACY) -> str:
    """The meaning of each column, one per line."""
    lines = [f"{short}: {long}" for short, long in columns(headline.title)[1:-1]]
    if headline != ACCURACY:
        lines.insert(0, f"{headline.title}: {headline.name}, {headline.better} is better")
    return "\n".join(lines)


def site_table(
    rows: Sequence[tuple[str, dict[str, dict[str, float]]]], stage: str = "", headline: Headline = ACCURACY
) -> list[list[str]]:
    """One line per named client, one column per (heading, sites): the headline on its own test slice, in `stage` or in
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
        [name, *(headline.show(sites.get(name, {}).get(one)) for _, sites, one in columns)]
        for name in names[:MOST_SITES]
    ]
    more = len(names) - MOST_SITES
    return [head, *lines] + ([[f"… {more} more", *[""] * len(columns)]] if more > 0 else [])


MOST_SITES = 50


def unseen_line(summary: dict[str, Any]) -> str:
    """The headline of clients that never trained, in one sentence; empty if there are none."""
    stages, show = summary.get("unseen"), Headline.of(summary).show
    if not stages:
        return ""
    global_model, tuned = ((stages.get(stage) or {}).get("mean") for stage in ("G", "L2"))
    count = max(stage["clients"] for stage in stages.values())
    return (
        f"{count} unseen client{'s' * (count > 1)}, own test slice: {show(global_model)} with the global model, "
        f"{show(tuned)} after fine-tuning it"
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


def as_text(value: Any) -> str:
    """A value of run.toml in one cell of a table."""
    if isinstance(value, dict):
        value = [f"{key} {item}" for key, item in value.items()]
    return "—" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
