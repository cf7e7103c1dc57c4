"""The share of wrong labels, and at which clients.

The neighbours of a sample say what it should be called (`neighbours.py`). Where they are sure, they are right, and the share
of samples that are called otherwise is the share of wrong labels. Where they are not sure, the samples are hard, and
disagreement says nothing. So the surest 20, 30, 50 and 70 % of every class are asked. Each answer is too high by the samples
that are hard all the same, and the lowest is taken.

The neighbours' odd and even halves are independent of each other. If they do not say the same even of the surest 70 %, they do
not know the classes of these data, and nothing is reported.

If everybody who holds a class has wrong labels only, nobody calls these samples by their name: samples that look alike have no
label in common, so most of them are wrong. Where a client is like that and the sure samples say that most of it is right, the two
contradict each other. If such clients hold more than a few of all samples, no share is reported, but the clients are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undrift.advice.neighbours import Neighbours

SURE = (0.2, 0.3, 0.5, 0.7)
KNOWN = 0.82  # of the surest samples must get the same class from both halves
LEAST = 50  # samples
COMMON = 0.35  # of a sample's neighbours must have the same label, or they have none in common
UNKNOWN = 0.07  # of all samples may be at clients of that kind; more would be an error of over 5 points
PRIOR = 5  # samples: what a client with few sure samples is drawn to the mean by


@dataclass(frozen=True)
class WrongLabels:
    share: float | None  # of all samples; None if the neighbours do not know the classes, or not at too many clients
    by_client: dict[int, float]
    known: float  # how often both halves of the neighbours say the same of the surest 70 %
    agrees: np.ndarray  # which samples are called as their neighbours say
    unknown: tuple[int, ...] = ()  # clients where nobody says what is right, if they are why there is no share


def wrong_labels(near: Neighbours, labels: np.ndarray, client: np.ndarray, classes: int) -> WrongLabels:
    votes = near.votes(labels, classes)
    said, surety = votes.argmax(1), votes.max(1)
    odd, even = (near.votes(labels, classes, slice(half, None, 2)).argmax(1) for half in (0, 1))
    known, disagrees = float((odd == even)[surest(said, surety, SURE[-1])].mean()), said != labels
    answers = [shares(disagrees, surest(said, surety, share), client) for share in SURE]
    share, by_client = min(answers, key=lambda answer: answer[0])
    unknown = tuple(one for one in without_common_label(surety, client) if by_client[one] < 1 - COMMON)
    if known < KNOWN or np.isin(client, unknown).mean() <= UNKNOWN:
        unknown = ()
    return WrongLabels(share if known >= KNOWN and not unknown else None, by_client, known, ~disagrees, unknown)


def without_common_label(surety: np.ndarray, client: np.ndarray) -> tuple[int, ...]:
    """The clients most of whose samples have neighbours without a label in common."""
    return tuple(one for one in np.unique(client).tolist() if (surety[client == one] < COMMON).mean() > 0.5)


def surest(said: np.ndarray, surety: np.ndarray, share: float) -> np.ndarray:
    """Which samples are among the surest of those said to be of one class."""
    chosen = np.zeros(len(said), dtype=bool)
    for one in np.unique(said):
        rows = np.flatnonzero(said == one)
        order = np.argsort(-surety[rows], kind="stable")
        chosen[rows[order[: int(np.ceil(share * len(rows)))]]] = True
    return chosen


def shares(disagrees: np.ndarray, sure: np.ndarray, client: np.ndarray) -> tuple[float, dict[int, float]]:
    """The share of wrong labels among all samples and at every client, as found among the sure ones. Every client counts by its
    samples, not by its sure samples: wrong labels may gather at clients with few of these."""
    mean = float(disagrees[sure].mean())
    by_client: dict[int, float] = {}
    total = 0.0
    for one in np.unique(client).tolist():
        mine = client == one
        wrong, asked = int((disagrees & sure & mine).sum()), int((sure & mine).sum())
        by_client[one] = (wrong + PRIOR * mean) / (asked + PRIOR)
        total += by_client[one] * int(mine.sum())
    return total / len(client), by_client
