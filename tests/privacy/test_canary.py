"""A membership attack that can fail: one client sends a crafted update, and somebody who sees the released model guesses
whether it took part. From how often the guess is right follows a lower bound on ε that holds with 95 % confidence.

The client sends an update far beyond the bound along one coordinate. The guess looks at that coordinate of the release.
Without the client, every coordinate of a release is one more draw of what the guesser sees.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from undrift.contract.context import Replies, Server
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.store.run_store import RunStore
from undrift.testing import QUICK, tiny

TRIALS = 600
DELTA = 1e-5


def epsilon_seen(upload: str, divide_noise_by: float = 1.0, monkeypatch: pytest.MonkeyPatch | None = None) -> float:
    """The attack's lower bound on ε of one round in which everybody takes part."""
    federation = tiny()
    options = from_keywords({**QUICK, "rounds": 1, "model": federation.model, "method": "fedavg", "upload": upload})
    setup = prepare(options, federation)
    if divide_noise_by != 1.0:
        assert monkeypatch is not None
        honest = Server.noise
        monkeypatch.setattr(
            Server,
            "noise",
            lambda self, purpose, size, deviation: honest(self, purpose, size, deviation / divide_noise_by),
        )
    store = RunStore(None, 10**6)
    loop = setup.loop(Inline(setup.runtime, store.states), store)
    (part,) = setup.method.on("upload")
    state = loop.begin()
    present, absent = [], []
    for trial in range(TRIALS):
        server = loop.open_round(state).window(part)
        server.round = trial + 1  # a draw of its own
        coordinate = trial % setup.plan.layout.n
        crafted = torch.zeros(setup.plan.layout.n)
        crafted[coordinate] = 1e6
        replies = Replies([0], [1], [server.vector + crafted], [server.vector], [1], [1.0], [0.0], [0.0])
        with_it, _ = part.release(server, server.vector, replies)
        server.round = TRIALS + trial + 1
        without, _ = part.release(server, server.vector, Replies([], [], [], [], [], [], [], []))
        present.append(float(with_it[coordinate] - server.vector[coordinate]))
        absent.append((without - server.vector).numpy())
    return lower_bound(np.array(present), np.concatenate(absent))


def lower_bound(present: np.ndarray, absent: np.ndarray) -> float:
    """The largest ε that the error rates contradict, at thresholds chosen on other draws (half of them)."""
    half = len(present) // 2, len(absent) // 2
    best, threshold = -math.inf, 0.0
    for candidate in np.quantile(
        np.concatenate([present[: half[0]], absent[: half[1]]]), np.linspace(0.001, 0.9999, 400)
    ):
        if (found := bound_at(candidate, present[: half[0]], absent[: half[1]])) > best:
            best, threshold = found, candidate
    return bound_at(threshold, present[half[0] :], absent[half[1] :])


def bound_at(threshold: float, present: np.ndarray, absent: np.ndarray) -> float:
    """Clopper and Pearson's limits of the two rates, each at 97.5 %: TPR ≤ e^ε FPR + δ."""
    hits, alarms = int((present > threshold).sum()), int((absent > threshold).sum())
    rate = stats.beta.ppf(0.025, hits, len(present) - hits + 1) if hits else 0.0
    false = stats.beta.ppf(0.975, alarms + 1, len(absent) - alarms) if alarms < len(absent) else 1.0
    return math.log(max(rate - DELTA, 1e-12) / false)


def test_without_noise_the_client_is_found():
    assert epsilon_seen("dp(noise=0, clip=1)") > 5


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_attack_stays_below_the_stated_epsilon(epsilon):
    assert epsilon_seen(f"dp(epsilon={epsilon}, clip=1)") < epsilon


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_attack_notices_noise_that_is_a_quarter_of_what_was_stated(epsilon, monkeypatch):
    assert epsilon_seen(f"dp(epsilon={epsilon}, clip=1)", 4.0, monkeypatch) > epsilon
