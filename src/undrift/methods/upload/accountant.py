"""The privacy loss of client-level noise, counted by dp-accounting.

A round adds noise z·C to a sum to which every client contributes at most C. How much that protects after many rounds
depends on how the cohorts are drawn:

    cohorts    neighbouring federations   counted as
    poisson    one client more or less    Poisson-sampled Gaussian, privacy loss distribution (PLD)
    fixed      one client replaced        Gaussian sampled without replacement, Rényi (RDP); the sum changes by up to 2C
    all        one client more or less    Gaussian without sampling, PLD; also where it is not known how cohorts are drawn

Everything is an upper bound. ε of every round is computed before round 0: exactly for the first 20 rounds and the last
one, and between them on a grid with steps of 5 %, where a round gets the ε of the next point.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from undrift.core.errors import BadRequest

RELATIONS = {
    "poisson": "add or remove one client",
    "fixed": "replace one client",
    "all": "add or remove one client",
}
DENSE = 20  # rounds that are all computed
STEP = 1.05  # then the grid
ORDERS = tuple([1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024])


@dataclass(frozen=True)
class Mechanism:
    """One round's mechanism: noise multiplier z, and how clients are sampled."""

    noise: float
    cohorts: str  # "poisson", "fixed", "all"
    cohort: float  # expected participants
    clients: int

    @property
    def relation(self) -> str:
        return RELATIONS[self.cohorts]

    @property
    def rate(self) -> float:
        return min(1.0, self.cohort / self.clients)


@cache
def epsilons(mechanism: Mechanism, delta: float, rounds: int) -> tuple[float, ...]:
    """ε after 1, 2, …, `rounds` rounds."""
    grid = list(range(1, min(rounds, DENSE) + 1))
    while grid[-1] < rounds:
        grid.append(min(rounds, math.ceil(grid[-1] * STEP)))
    after = counter(mechanism, delta)
    values = [after(point) for point in grid]
    return tuple(values[bisect.bisect_left(grid, round)] for round in range(1, rounds + 1))


def epsilon(mechanism: Mechanism, delta: float, rounds: int) -> float:
    """ε after so many rounds."""
    return float(counter(mechanism, delta)(rounds))


def counter(mechanism: Mechanism, delta: float) -> Any:
    """A function from a number of rounds to ε."""
    if mechanism.noise == 0:
        return lambda rounds: math.inf
    if mechanism.cohorts == "fixed":
        return lambda rounds: renyi(mechanism, delta, rounds)
    one_round = loss_distribution(mechanism)
    return lambda rounds: float(one_round.self_compose(rounds).get_epsilon_for_delta(delta))


@cache
def loss_distribution(mechanism: Mechanism) -> Any:
    """The privacy loss distribution of one round."""
    rate = mechanism.rate if mechanism.cohorts == "poisson" else 1.0
    return library().pld.privacy_loss_distribution.from_gaussian_mechanism(
        mechanism.noise, sampling_prob=rate, value_discretization_interval=1e-3
    )


def renyi(mechanism: Mechanism, delta: float, rounds: int) -> float:
    """ε by Rényi differential privacy: for fixed cohorts, and as a cross-check of the others."""
    dp = library()
    if mechanism.cohorts == "fixed":
        accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
        # Replacing a client moves the sum by up to 2C, so the multiplier in units of that change is z/2.
        event = dp.SampledWithoutReplacementDpEvent(
            mechanism.clients, round(mechanism.cohort), dp.GaussianDpEvent(mechanism.noise / 2)
        )
    else:
        accountant = dp.rdp.RdpAccountant(ORDERS)
        rate = mechanism.rate if mechanism.cohorts == "poisson" else 1.0
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(mechanism.noise))
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def calibrated(epsilon_wanted: float, delta: float, rounds: int, cohorts: str, cohort: float, clients: int) -> float:
    """The smallest noise multiplier whose ε after all rounds is at most the one wanted, to 0.1 %."""

    def spends(noise: float) -> float:
        return epsilon(Mechanism(noise, cohorts, cohort, clients), delta, rounds)

    low, high = 0.0, 1.0
    while spends(high) > epsilon_wanted:
        low, high = high, 2 * high
        if high > 1e5:
            raise BadRequest(
                f"dp: no noise below 100,000 reaches epsilon = {epsilon_wanted:g} in {rounds} rounds; give a larger epsilon"
            )
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if middle > 0.05 and spends(middle) <= epsilon_wanted else (middle, high)
    return float(f"{high * (1 + 5e-5):.6g}")  # rounded upwards, so that it is written and read back as it is


def library() -> Any:
    """dp-accounting, which is an extra."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError:
        raise BadRequest(
            "ε is counted with dp-accounting, which is not installed: pip install 'undrift[privacy]'"
        ) from None
    return dp_accounting
