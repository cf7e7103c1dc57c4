"""Tables whose headers say which accuracy they mean."""

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
    """Header and one row per run."""
    rows = [[short for short, _ in COLUMNS]]
    for one in summaries:
        stages = one["stages"]
        rows.append([
            one["method"], percent(one["accuracy"]),
            *(percent((stages[stage] or {}).get(data, {}).get("mean"))
              for stage in ("L1", "L2") for data in ("acc_local", "acc_global")),
            percent((stages["L1"] or {}).get("acc_local", {}).get("worst_decile")),
            f"{one['seconds']:.1f}",
        ])  # fmt: skip
    return rows


def percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.2f}"


def legend() -> str:
    """What the columns mean, in one line each."""
    return "\n".join(f"{short}: {long}" for short, long in COLUMNS[1:-1])


def newcomers_line(summary: dict[str, Any]) -> str:
    """What clients that never trained get, in one sentence; empty where there are none."""
    found = summary.get("unseen")
    if not found:
        return ""
    alone, tuned = ((found.get(stage) or {}).get("mean") for stage in ("G", "L2"))
    count = max(one["clients"] for one in found.values())
    return (f"{count} unseen client{'s' * (count > 1)}, own test slice: {percent(alone)} with the global model, "
            f"{percent(tuned)} after fine-tuning it")  # fmt: skip


def text_table(rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Columns of words stand left, those of numbers right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) if i in words else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
             .rstrip() for row in rows]  # fmt: skip
    return "\n".join([lines[0], "  ".join("─" * w for w in widths), *lines[1:]])


def markdown_table(rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """The same as Markdown."""
    head, *lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---" if i in words else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *lines))
