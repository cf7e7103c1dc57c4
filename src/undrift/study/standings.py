"""Who is ahead, and whether that means anything: mean ± std, rank, cells won, paired differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Value = Callable[[Row], float | None]
LEVEL = 0.95


def at(*path: str) -> Value:
    """A number of a row by its path; None where it is not there."""

    def value(row: Row) -> float | None:
        found: Any = row
        for key in path:
            found = None if found is None else found.get(key)
        return found

    return value


G = at("accuracy")
LOCAL = at("stages", "L1", "acc_local", "mean")
COLUMNS: tuple[tuple[str, Value], ...] = (
    ("G", G),
    *(
        (f"{s} Acc({d[4].upper()})", at("stages", s, d, "mean"))
        for s in ("L1", "L2")
        for d in ("acc_local", "acc_global")
    ),
    ("worst 10 %", at("stages", "L1", "acc_local", "worst_decile")),
)


def labels(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def values(rows: Sequence[Row], method: str, value: Value) -> list[float]:
    """Over seeds; failed runs have none."""
    found = [value(row) for row in rows if row["method"] == method]
    return [number for number in found if number is not None]


def mean_and_std(numbers: Sequence[float], scale: float = 100.0, digits: int = 2) -> str:
    """`91.20 ± 0.31` (of the sample); `—` where there is nothing."""
    if not len(numbers):
        return "—"
    shown = f"{scale * np.mean(numbers):.{digits}f}"
    return shown + (f" ± {scale * np.std(numbers, ddof=1):.{digits}f}" if len(numbers) > 1 else "")


def cells(rows: Sequence[Row], value: Value) -> list[dict[str, float]]:
    """One cell per seed (and environment, where rows name one): the methods' numbers under equal conditions."""
    found: dict[Any, dict[str, float]] = {}
    for row in rows:
        number = value(row)
        if number is not None:
            found.setdefault((row.get("column"), row["seed"]), {})[row["method"]] = number
    return list(found.values())


def ranks(rows: Sequence[Row], value: Value) -> dict[str, float]:
    """Mean rank over cells, 1 = best; equal numbers share a rank."""
    from scipy.stats import rankdata

    found: dict[str, list[float]] = {}
    for cell in cells(rows, value):
        for method, rank in zip(cell, rankdata([-number for number in cell.values()])):
            found.setdefault(method, []).append(float(rank))
    return {method: float(np.mean(all_ranks)) for method, all_ranks in found.items()}


def won(rows: Sequence[Row], value: Value) -> dict[str, float]:
    """Share of cells in which a method is the best; a tie is shared."""
    all_cells = cells(rows, value)
    share = dict.fromkeys(labels(rows), 0.0)
    for cell in all_cells:
        first = [method for method, number in cell.items() if number == max(cell.values())]
        for method in first:
            share[method] += 1 / len(first) / len(all_cells)
    return share


def difference(rows: Sequence[Row], method: str, to: str, value: Value) -> tuple[float, float, float] | None:
    """Mean paired difference and its 95 % confidence interval (Student's t over cells); the interval is infinite where
    there is one cell only."""
    from scipy.stats import t

    pairs = [cell[method] - cell[to] for cell in cells(rows, value) if method in cell and to in cell]
    if not pairs:
        return None
    mean, n = float(np.mean(pairs)), len(pairs)
    if n == 1:
        return mean, -np.inf, np.inf
    half = float(t.ppf((1 + LEVEL) / 2, n - 1) * np.std(pairs, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def shown_difference(found: tuple[float, float, float] | None) -> str:
    """`+1.20 [+0.40, +2.00]`, in points."""
    if found is None:
        return "—"
    mean, low, high = (100 * number for number in found)
    return f"{mean:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else "")


def table(rows: Sequence[Row]) -> list[list[str]]:
    """One line per method: mean ± std over seeds, best first, failed ones last."""
    head = ["method", *(name for name, _ in COLUMNS), "s"]
    lines = []
    for method in labels(rows):
        whole = [row for row in rows if row["method"] == method and "failed" not in row]
        lost = sum(row["method"] == method for row in rows) - len(whole)
        name = method + (f" ({lost} failed)" if lost and whole else "")
        if not whole:
            lines.append((-2.0, [name, "failed", *[""] * (len(head) - 2)]))
            continue
        best = values(rows, method, G)
        lines.append((
            float(np.mean(best)) if best else -1.0,
            [name, *(mean_and_std(values(rows, method, value)) for _, value in COLUMNS),
             f"{np.mean([row['seconds'] for row in whole]):.1f}"],
        ))  # fmt: skip
    return [head, *[line for _, line in sorted(lines, key=lambda item: -item[0])]]


def standings_table(rows: Sequence[Row]) -> list[list[str]]:
    """Rank, cells won, paired difference to the first method; milliseconds of a client and of the server per round."""
    first = labels(rows)[0]
    rank, share = ranks(rows, G), won(rows, G)
    head = ["method", "rank", "won", f"G − {first}", f"L1 Acc(L) − {first}", "ms/client", "ms/server"]
    lines = []
    for method in sorted(labels(rows), key=lambda m: rank.get(m, np.inf)):
        pairs = [
            shown_difference(difference(rows, method, first, value)) if method != first else "" for value in (G, LOCAL)
        ]
        client, server = (values(rows, method, at("times", key)) for key in ("client", "server"))
        lines.append([
            method, f"{rank[method]:.1f}" if method in rank else "—", f"{100 * share[method]:.0f} %" if method in rank else "—",
            *pairs, mean_and_std(client, 1000.0, 1), mean_and_std(server, 1000.0, 1),
        ])  # fmt: skip
    return [head, *lines]


LEGEND = """rank: mean over seeds, by G; won: share of seeds in which the method is best
G − first: paired difference in points with its 95 % confidence interval over seeds (Student's t)
ms/client: a client's training and scoring per round; ms/server: orders and aggregation per round"""
