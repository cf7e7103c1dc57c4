"""Who takes part in a round. Selection belongs to the run, not to the method: cohorts must not depend on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.references import answer
from undrift.core.user_code import user_function
from undrift.core.words import shown


class Selection(Protocol):
    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        """The ids of the participants, ascending."""
        ...


@dataclass(frozen=True)
class Uniform:
    """`cohort` clients without replacement: a share with a decimal point, a number without one."""

    cohort: float | int = 0.5

    def size(self, population: int) -> int:
        if isinstance(self.cohort, bool) or not self.cohort > 0:
            raise BadRequest(
                f"the cohort must be above 0, not {self.cohort}; 0.5 is half of the clients, 5 is five of them"
            )
        if isinstance(self.cohort, float):
            if self.cohort > 1:
                raise BadRequest(
                    f"--cohort with a decimal point is a share of at most 1.0, not {shown(self.cohort)}; "
                    "write a whole number for a number of clients"
                )
            return max(1, int(self.cohort * population + 0.5))
        if self.cohort > population:
            raise BadRequest(
                f"a cohort of {shown(self.cohort)} clients is more than the {population} there are; lower it"
            )
        return self.cohort

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        size = self.size(population)
        if size == population:
            return list(range(population))
        return sorted(stream.choice(population, size, replace=False).tolist())


@dataclass(frozen=True)
class All:
    """Every client in every round."""

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        return list(range(population))


@dataclass(frozen=True)
class Probability:
    """Each client by itself with probability p; drawn again if no client is chosen, unless `keep_empty`."""

    p: float
    keep_empty: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise BadRequest(f"probability(p) needs 0 < p ≤ 1, not {self.p}")

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        while True:
            chosen = np.flatnonzero(stream.random(population) < self.p)
            if len(chosen) or self.keep_empty:
                return [int(k) for k in chosen]


@dataclass(frozen=True)
class List:
    """Always these clients."""

    clients: Sequence[int]

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        return self.checked(population)

    def checked(self, population: int) -> list[int]:
        if not self.clients or not all(type(k) is int and 0 <= k < population for k in self.clients):
            raise BadRequest(f"list([…]) needs client numbers in 0…{population - 1}, not {list(self.clients)}")
        return sorted(set(self.clients))


@dataclass(frozen=True)
class Cohorts:
    """These cohorts, one per round: replays those of another program."""

    cohorts: Sequence[Sequence[int]]

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        return self.of_round(0, population)

    def of_round(self, round: int, population: int) -> list[int]:
        return List(self.cohorts[round]).checked(population)

    def check(self, population: int, rounds: int) -> None:
        if not all(isinstance(one, (list, tuple)) for one in self.cohorts) or len(self.cohorts) < rounds:
            raise BadRequest(
                f"cohorts([[…], […]]) needs a list of clients for each of the {rounds} rounds, not "
                f"{shown(list(self.cohorts))}; lower --rounds or add cohorts"
            )
        for round in range(rounds):
            self.of_round(round, population)


@dataclass(frozen=True)
class RandomSample:
    """`cohort` clients as a script draws them that calls Python's `random.seed(seed)` once and `random.sample(range(clients),
    cohort)` in every round, and draws nothing else from that generator. FedNolowe's does, with seed 42."""

    seed: int
    cohort: float | int

    def size(self, population: int) -> int:
        if type(self.seed) is not int or self.seed < 0:
            raise BadRequest(f"random_sample(seed, cohort) needs a whole seed of at least 0, not {self.seed}")
        return Uniform(self.cohort).size(population)

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        return self.of_round(0, population)

    def of_round(self, round: int, population: int) -> list[int]:
        draws, size = random.Random(self.seed), self.size(population)
        for _ in range(round):
            draws.sample(range(population), size)
        return sorted(draws.sample(range(population), size))


@dataclass(frozen=True)
class Function:
    """A function of the user's own: of a random stream and the number of clients, the ids of the participants."""

    name: str
    function: Callable[[np.random.Generator, int], Sequence[int]]

    def choose(self, stream: np.random.Generator, population: int) -> list[int]:
        def are_clients(found: Any) -> bool:
            if any(int(k) == k and not 0 <= k < population for k in found):
                numbers = shown(list(found))
                raise BadRequest(
                    f"the selection {self.name} returned {numbers}, not clients in 0…{population - 1}; return only these"
                )
            return len(found) > 0 and all(int(k) == k for k in found)

        must = f"client numbers in 0…{population - 1} for (stream, clients)"
        return sorted({int(k) for k in answer("selection", self.function, are_clients, must, stream, population)})


LEAST_EXPECTED = 0.01  # clients per round: below, drawing again until one is chosen takes ever longer
NAMES = {"uniform": Uniform, "all": All, "probability": Probability, "list": List, "cohorts": Cohorts,
         "random_sample": RandomSample}  # fmt: skip


def cohort_of(found: Selection, stream: np.random.Generator, population: int, round: int) -> list[int]:
    """The participants of one round. Only a replayed selection depends on the round's number; the others draw."""
    if isinstance(found, (Cohorts, RandomSample)):
        return found.of_round(round, population)
    return found.choose(stream, population)


def chosen(given: Any, cohort: float | int | None, clients: int, rounds: int = 1) -> Selection:
    """The selection that --selection and --cohort name."""
    call = text.parse(given) if isinstance(given, str) else None
    if call is not None and call.name == "uniform":
        named = call.args or call.options
        uniform: Uniform = text.build("selection", call, NAMES) if named else Uniform(0.5 if cohort is None else cohort)
        if cohort not in (None, uniform.cohort):
            raise BadRequest(f"--cohort {cohort} and --selection {given} name two cohorts; give one of them")
        uniform.size(clients)
        return uniform
    if cohort is not None:
        raise BadRequest(f"--cohort goes with --selection uniform; {given} says itself who takes part")
    if call is not None and ":" in call.name:
        made = user_function("selection", call)
        if hasattr(made, "choose"):
            own: Selection = made
            return own
        function = Function(call.name, made)
        function.choose(np.random.default_rng(0), clients)  # tried before round 0, as a user's loss and metrics are
        return function
    found: Selection = text.build("selection", call, NAMES) if call is not None else given
    if isinstance(found, List):
        found.checked(clients)
    if isinstance(found, Cohorts):
        found.check(clients, rounds)
    if isinstance(found, RandomSample):
        found.size(clients)
    if isinstance(found, Probability) and found.p * clients < LEAST_EXPECTED:
        raise BadRequest(
            f"probability({found.p:g}) of {clients} clients expects less than one client in a hundred rounds; use at least "
            f"{LEAST_EXPECTED / clients:.2g}"
        )
    return found


def keeping_empty(found: Selection) -> Selection:
    """The same selection, whose cohorts are not drawn again if they are empty."""
    return replace(found, keep_empty=True) if isinstance(found, Probability) else found


def kind_of_cohort(found: Selection, clients: int) -> str:
    """How cohorts are drawn, as `Plan.cohorts` says it."""
    if isinstance(found, Probability):
        return "poisson"
    if isinstance(found, Uniform):
        return "all" if found.size(clients) == clients else "fixed"
    return "all" if isinstance(found, All) else ""


def expected_cohort(found: Selection, clients: int) -> float | None:
    if isinstance(found, (Uniform, RandomSample)):
        return found.size(clients)
    if isinstance(found, Probability):
        return found.p * clients
    if isinstance(found, List):
        return len(set(found.clients))
    return clients if isinstance(found, All) else None
