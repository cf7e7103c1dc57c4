"""How well a small classifier tells clients apart by their inputs, given the class.

For every class a ridge classifier learns from the inputs which client a sample comes from, cross-validated. For every pair
of clients, d is how many standard deviations its scores of the two are apart. The mean d over pairs and classes is shown as
2·AUC − 1 of two clients at that distance: 0 if the inputs say nothing about the client, 1 if they always tell it. Distances
are averaged, not AUCs: the AUC of two clients that are told apart every time is 1, however much further apart they move.
The shares of the classes have no say in it. Samples that their neighbours call otherwise are left out: a wrong label would
be a sample of another class.
"""

from __future__ import annotations

import math

import numpy as np

from undrift.core.streams import numpy_stream

LEAST = 5  # samples of a class that a client must have to be compared
CLIENTS = 20  # at most, with the most samples
DIMENSIONS = 15
FOLDS = 5
SHUFFLES = 5
FARTHEST = 6.0  # standard deviations: an AUC of 0.99999. Scores without any spread would be infinitely far apart


def feature_skew(points: np.ndarray, labels: np.ndarray, client: np.ndarray) -> float | None:
    """None where no class has two clients with enough samples."""
    largest = np.argsort(-np.bincount(client), kind="stable")[:CLIENTS]
    inputs = points[:, :DIMENSIONS]
    spread = inputs.std(0)
    inputs = inputs / np.where(spread > 0, spread, 1)
    total = weight = 0.0
    for one in np.unique(labels):
        rows = np.flatnonzero((labels == one) & np.isin(client, largest))
        clients, counts = np.unique(client[rows], return_counts=True)
        rows = rows[np.isin(client[rows], clients[counts >= LEAST])]
        clients, place = np.unique(client[rows], return_inverse=True)
        if len(clients) < 2:
            continue
        for distance, size in pairs(scores(inputs[rows], place), place):
            total, weight = total + size * distance, weight + size
    # Normal scores d standard deviations apart have the AUC Φ(d/√2), and 2·Φ(d/√2) − 1 is erf(d/2).
    return math.erf(max(0.0, total / weight) / 2) if weight else None


def by_chance(points: np.ndarray, labels: np.ndarray, client: np.ndarray, seed: int) -> float:
    """The largest value of a few deals in which the samples of every class are shuffled among its clients: two small clients
    differ by chance too."""
    found = [0.0]
    for deal in range(SHUFFLES):
        stream, dealt = numpy_stream(seed, "advice", 3, deal), client.copy()
        for one in np.unique(labels):
            rows = np.flatnonzero(labels == one)
            dealt[rows] = stream.permutation(client[rows])
        found.append(feature_skew(points, labels, dealt) or 0.0)
    return max(found)


def scores(inputs: np.ndarray, client: np.ndarray) -> np.ndarray:
    """[samples, clients]: how much each sample looks like one of a client, said by a classifier that has not seen it."""
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(min(FOLDS, int(np.bincount(client).min())), shuffle=True, random_state=0)
    probe = RidgeClassifier(alpha=10.0, class_weight="balanced")
    found: np.ndarray = cross_val_predict(probe, inputs, client, cv=folds, method="decision_function")
    return np.stack([-found, found], axis=1) if found.ndim == 1 else found


def pairs(found: np.ndarray, client: np.ndarray) -> list[tuple[float, float]]:
    """(distance in standard deviations, weight) of every pair of clients; negative if the scores point the wrong way."""
    out = []
    for one in range(found.shape[1]):
        for other in range(one):
            lean = found[:, one] - found[:, other]
            mine, theirs = lean[client == one], lean[client == other]
            apart = float(mine.mean() - theirs.mean())
            degrees = max(1, len(mine) + len(theirs) - 2)
            spread = math.sqrt((len(mine) * mine.var() + len(theirs) * theirs.var()) / degrees)
            distance = apart / max(spread, abs(apart) / FARTHEST) if apart else 0.0
            out.append((distance, len(mine) * len(theirs) / (len(mine) + len(theirs))))
    return out
