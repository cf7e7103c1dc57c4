"""Your own data: one (x, y) pair per client.

Three schools have collected handwritten digits. No school has all ten, and the amounts differ. The script prints each
school's digits, the table of the run, and the accuracy of each school's personal model on its own test data and on all.

    python examples/own_data.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import undrift as ud

SCHOOLS = {"north": range(4), "east": range(3, 8), "south": range(6, 10)}


def schools() -> list[tuple[np.ndarray, np.ndarray]]:
    """(x, y) per school. Images are float32, channels first, scaled the same way everywhere."""
    digits = load_digits()
    x, y = (digits.images[:, None] / 16).astype(np.float32), digits.target
    rows: list[list[int]] = [[] for _ in SCHOOLS]
    for row, digit in enumerate(y):
        writers = [number for number, digits_of_school in enumerate(SCHOOLS.values()) if digit in digits_of_school]
        rows[writers[row % len(writers)]].append(row)  # digits that two schools wrote go to them in turn
    return [(x[own_rows], y[own_rows]) for own_rows in rows]


def main() -> None:
    # Without test data, a fifth of each client's samples becomes its test set: `test_share=0.2`.
    federation = ud.Federation.from_clients(schools(), name="schools", labels=[str(c) for c in range(10)], seed=0)
    for number, school in enumerate(SCHOOLS):
        counts = federation.counts(number)
        print(f"{school}: {federation.sizes[number]} to train on, digits {[c for c in range(10) if counts[c]]}")
    print(f"{len(federation.test_y)} to test on")

    result = ud.run("fliu", federation, model="mlp(32)", rounds=8, cohort=1.0, out=False)
    print(result.table())
    for number, school in enumerate(SCHOOLS):
        query = "SELECT data, value FROM metrics WHERE stage='L1' AND metric='accuracy' AND client=? AND round=7"
        accuracy = dict(result.rows(query, (number,)))
        print(f"{school}'s personal model: {accuracy['own']:.1%} on its own digits, {accuracy['global']:.1%} on all")
    print(f"it is a plain {type(result.personal(0)).__name__}")


if __name__ == "__main__":
    main()
