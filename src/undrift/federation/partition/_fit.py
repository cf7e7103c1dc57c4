"""Matrices with given row and column sums: fitting (Sinkhorn–Knopp) and rounding."""

from __future__ import annotations

import numpy as np

from undrift.federation.partition._common import largest_remainder

ITERATIONS = 10_000
FLOORS = (1e-12, 1e-6, 1e-3)


def sinkhorn(
    start: np.ndarray, rows: np.ndarray, columns: np.ndarray, tolerance: float
) -> tuple[np.ndarray, dict[str, object]]:
    """Scale rows and columns of `start` in turn until its sums are `rows` and `columns`.

    Column sums are exact, row sums within the relative `tolerance`. A small α leaves exact zeros, so 1e-12 is added
    first. If the fit still fails after 10,000 iterations (for example with two one-class clients of the same class),
    the floor is raised step by step, and the record says to what.
    """
    columns = columns.astype(np.float64)
    for floor in FLOORS:
        fitted = start / start.sum(1, keepdims=True) + floor
        for iteration in range(1, ITERATIONS + 1):
            fitted *= (rows / fitted.sum(1))[:, None]
            fitted *= columns / fitted.sum(0)
            if iteration % 10 == 0 or iteration < 10:
                error = float(np.abs(fitted.sum(1) / rows - 1).max())
                if error < tolerance:
                    return fitted, {"floor": floor} if floor != FLOORS[0] else {}
    return fitted, {"floor": floor, "row_error": error}


def dirichlet_rows(alpha: float, rows: int, columns: int, stream: np.random.Generator) -> np.ndarray:
    """Rows ~ Dir(α·1). A row that underflows to 0/0 (tiny α) takes its limit, a single entry."""
    drawn = stream.dirichlet(np.full(columns, float(alpha)), size=rows)
    broken = np.flatnonzero(~(drawn.sum(1) > 0.5))
    drawn[broken] = np.eye(columns)[stream.integers(columns, size=len(broken))]
    return drawn


def round_columns(exact: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Whole numbers with exact column sums, each column by largest remainder. Row sums are off by a few."""
    counts = np.zeros(exact.shape, dtype=np.int64)
    for c, total in enumerate(columns):
        if total:
            counts[:, c] = largest_remainder(exact[:, c], int(total))
    return counts


def proportional(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Whole numbers with exact row *and* column sums, every entry within 1 of rows_k · columns_c / n.

    Floors first. What rows and columns still lack is a 0/1 matrix with known margins. It exists because the fractions
    are such a matrix of real numbers, and the greedy algorithm of Gale and Ryser finds it: each row adds one to the
    columns that lack most.
    """
    counts: np.ndarray = rows[:, None] * columns[None, :] // columns.sum()
    lacking = columns - counts.sum(0)
    for k in np.argsort(-rows, kind="stable"):
        ones = np.argsort(-lacking, kind="stable")[: rows[k] - counts[k].sum()]
        counts[k, ones] += 1
        lacking[ones] -= 1
    return counts
