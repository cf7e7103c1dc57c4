"""Which method is ahead, and whether the lead is more than chance: mean ± std, rank, cells won, paired differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undrift.core.errors import unknown
from undrift.core.headline import ACCURACY, Headline
from undrift.experiment.tables import headline_of, headline_value, site_table

Row = dict[str, Any]
Value = Callable[[Row], float | None]
LEVEL = 0.95


def at(*path: str) -> Value:
    """A number of a row by its path; None where the row does not have it."""

    def value(row: Row) -> float | None:
        item: Any = row
        for key in path:
            item = None if item is None else item.get(key)
        return item

    return value


G = headline_value
LOCAL = at("stages", "L1", "acc_local", "mean")


def columns(headline: Headline) -> tuple[tuple[str, Value], ...]:
    """The columns of a table of results, named after its headline."""
    return (
        ("G", G),
        *(
            (f"{s} {headline.title}({d[4].upper()})", at("stages", s, d, "mean"))
            for s in ("L1", "L2")
            for d in ("acc_local", "acc_global")
        ),
        ("worst 10 %", at("stages", "L1", "acc_local", "worst_decile")),
    )


COLUMNS = columns(ACCURACY)


def columns_of(rows: Sequence[Row]) -> dict[str, Value]:
    return dict(columns(headline_of(rows)))


def rank_column(rows: Sequence[Row], asked: str | None = None) -> str:
    """The column that methods are ranked by: the one asked for, else G. If a method has no global model: the first
    column that all of them have."""
    names = list(columns_of(rows))
    if asked is not None:
        short = {name.replace(" ", "").lower(): name for name in names}
        if asked.replace(" ", "").lower() not in short:
            raise unknown("column for --rank-by", asked, names)
        return short[asked.replace(" ", "").lower()]
    finished = [row for row in rows if "failed" not in row]
    complete = [
        name for name, value in columns_of(rows).items() if finished and all(value(row) is not None for row in finished)
    ]
    return complete[0] if complete else "G"


def rank_note(rows: Sequence[Row], asked: str | None = None) -> str:
    """Why the methods are not ranked by G, in one sentence; empty if they are, or were asked to be."""
    column = rank_column(rows, asked)
    if asked is not None or column == "G":
        return ""
    without = [method for method in labels(rows) if not values(rows, method, G)]
    return f"Ranked by {column}: {', '.join(without)} {'has' if len(without) == 1 else 'have'} no global model."


def labels(rows: Sequence[Row]) -> list[str]:
    """The methods, in the order of their first rows."""
    return list(dict.fromkeys(row["method"] for row in rows))


def values(rows: Sequence[Row], method: str, value: Value) -> list[float]:
    """The numbers of a method over its seeds. Failed runs have none."""
    numbers = [value(row) for row in rows if row["method"] == method]
    return [number for number in numbers if number is not None]


def mean_and_std(numbers: Sequence[float], scale: float = 100.0, digits: int = 2) -> str:
    """`91.20 ± 0.31` (std of the sample); `—` without numbers."""
    if not len(numbers):
        return "—"
    shown = f"{scale * np.mean(numbers):.{digits}f}"
    return shown + (f" ± {scale * np.std(numbers, ddof=1):.{digits}f}" if len(numbers) > 1 else "")


def cells(rows: Sequence[Row], value: Value) -> list[dict[str, float]]:
    """One cell per seed (and per column of a preset): the numbers of the methods under equal conditions."""
    by_condition: dict[Any, dict[str, float]] = {}
    for row in rows:
        number = value(row)
        if number is not None:
            by_condition.setdefault((row.get("column"), row["seed"]), {})[row["method"]] = number
    return list(by_condition.values())


def ranks(rows: Sequence[Row], value: Value) -> dict[str, float]:
    """Mean rank over cells, 1 = best; equal numbers share a rank."""
    by_method: dict[str, list[float]] = {}
    sign = headline_of(rows).sign
    for cell in cells(rows, value):
        for method, rank in zip(cell, shared_ranks([sign * number for number in cell.values()])):
            by_method.setdefault(method, []).append(float(rank))
    return {method: float(np.mean(all_ranks)) for method, all_ranks in by_method.items()}


def shared_ranks(numbers: Sequence[float]) -> list[float]:
    """The rank of each number, 1 = the largest. Equal numbers share the mean of their ranks.

    >>> shared_ranks([0.5, 0.9, 0.5])
    [2.5, 1.0, 2.5]
    """
    return [sum(o > n for o in numbers) + (sum(o == n for o in numbers) + 1) / 2 for n in numbers]


def win_shares(rows: Sequence[Row], value: Value) -> dict[str, float]:
    """Share of cells in which a method is the best. Tied methods divide the cell."""
    all_cells = cells(rows, value)
    share = dict.fromkeys(labels(rows), 0.0)
    for cell in all_cells:
        best = headline_of(rows).choose(cell.values())
        first = [method for method, number in cell.items() if number == best]
        for method in first:
            share[method] += 1 / len(first) / len(all_cells)
    return share


def difference(rows: Sequence[Row], method: str, to: str, value: Value) -> tuple[float, float, float] | None:
    """Mean paired difference and its 95 % confidence interval (Student's t over cells). With one cell the interval is
    infinite."""
    from scipy.special import stdtrit  # scipy.stats takes a second and 50 MB to import

    pairs = [cell[method] - cell[to] for cell in cells(rows, value) if method in cell and to in cell]
    if not pairs:
        return None
    mean, n = float(np.mean(pairs)), len(pairs)
    if n == 1:
        return mean, -np.inf, np.inf
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(pairs, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def shown_difference(interval: tuple[float, float, float] | None, factor: float = 100.0) -> str:
    """`+1.20 [+0.40, +2.00]`, in percentage points, or in the headline's own unit."""
    if interval is None:
        return "—"
    mean, low, high = (factor * number for number in interval)
    return f"{mean:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else "")


def results_table(rows: Sequence[Row], rank_by: str | None = None) -> list[list[str]]:
    """One line per method: mean ± std over seeds. The best method is first, by the column that methods are ranked by.
    Methods without a value there follow, by their L1 Acc(L). Failed ones are last."""
    named, headline = columns_of(rows), headline_of(rows)
    counted = any(row.get("privacy") for row in rows)
    head = ["method", *named, *["ε"] * counted, "s"]
    ranked_by = named[rank_column(rows, rank_by)]
    lines = []
    for method, own in by_method(rows).items():
        finished = [row for row in own if "failed" not in row]
        failed = len(own) - len(finished)
        name = method + (f" ({failed} failed)" if failed and finished else "")
        if not finished:
            lines.append(((-2, 0.0), [name, "failed", *[""] * (len(head) - 2)]))
            continue
        numbers = [mean_and_std(values(finished, method, value), headline.factor) for value in named.values()]
        seconds = f"{np.mean([row['seconds'] for row in finished]):.1f}"
        spent = [largest_epsilon(finished)] if counted else []
        lines.append((score(finished, method, ranked_by), [name, *numbers, *spent, seconds]))
    return [head, *[line for _, line in sorted(lines, key=lambda item: item[0], reverse=True)]]


def largest_epsilon(rows: Sequence[Row]) -> str:
    """The largest ε over seeds: each run is a release of its own on the same data, and none has more. ∞ without noise."""
    spent = [row["privacy"]["epsilon"] for row in rows if row.get("privacy")]
    return "—" if not spent else "∞" if None in spent else f"{max(spent):.3g}"


def sites_table(rows: Sequence[Row]) -> list[list[str]]:
    """One line per named client, one column per method: L1's headline on its own data, the mean over seeds. Empty if no
    client has a name."""
    found_columns = []
    for method in labels(rows):
        found: dict[str, list[float]] = {}
        for row in rows:
            for name, stages in row.get("sites", {}).items() if row["method"] == method else ():
                found.setdefault(name, []).extend(stages[stage] for stage in ("L1",) if stage in stages)
        found_columns.append((method, {name: {"L1": float(np.mean(v))} if v else {} for name, v in found.items()}))
    return site_table(found_columns, "L1", headline_of(rows))


def score(rows: Sequence[Row], method: str, value: Value) -> tuple[int, float]:
    """What a method is sorted by, the best highest: its mean value; where it has none it follows, by its L1 on own data."""
    sign = headline_of(rows).sign
    if numbers := values(rows, method, value):
        return 0, sign * float(np.mean(numbers))
    return -1, sign * float(np.mean(values(rows, method, LOCAL) or [0.0]))


def by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each method, in the order of their first rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["method"], []).append(row)
    return found


def standings_table(rows: Sequence[Row], rank_by: str | None = None) -> list[list[str]]:
    """Rank, cells won, paired difference to the first method, milliseconds per round of a client and of the server."""
    own = by_method(rows)
    first, column = next(iter(own)), rank_column(rows, rank_by)
    value, headline = columns_of(rows)[column], headline_of(rows)
    rank, share = ranks(rows, value), win_shares(rows, value)
    local = f"L1 {headline.title}(L)"
    shown = {column: value, local: LOCAL} if column != local else {local: LOCAL, "G": G}
    head = ["method", "rank", "won", *(f"{name} − {first}" for name in shown), "ms/client", "ms/server"]
    lines = []
    for method in sorted(own, key=lambda m: (rank.get(m, np.inf), *(-one for one in score(own[m], m, value)))):
        both = own[method] + own[first]
        pairs = [
            shown_difference(difference(both, method, first, value), headline.factor) if method != first else ""
            for value in shown.values()
        ]
        client, server = (values(own[method], method, at("times", key)) for key in ("client", "server"))
        place = [f"{rank[method]:.1f}", f"{100 * share[method]:.0f} %"] if method in rank else ["—", "—"]
        lines.append([method, *place, *pairs, mean_and_std(client, 1000.0, 1), mean_and_std(server, 1000.0, 1)])
    return [head, *lines]


def standings_legend(rows: Sequence[Row], rank_by: str | None = None) -> str:
    """What the columns of the standings mean, one per line."""
    column, note = rank_column(rows, rank_by), rank_note(rows, rank_by)
    points = " in points" if headline_of(rows).percent else ""
    lines = f"""rank: mean rank over seeds, by {column}
won: share of seeds in which the method has the best {column}
{column} − first: paired difference to the first method{points}, with its 95 % confidence interval over seeds (Student's t)
ms/client: training and scoring of one client per round; ms/server: orders and aggregation per round"""
    return f"{note}\n{lines}" if note else lines
