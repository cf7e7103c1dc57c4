"""What lock-step asks of a part that declares it: no client's result may depend on the clients it shares a stack with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from undrift.contract.parts import Part
from undrift.core.errors import BadRequest
from undrift.engine.side_by_side import Ended, SideBySide, side_by_side
from undrift.federation.federation import Federation
from undrift.round.lockstep.decide import Lockstep
from undrift.testing.toys import Broken, Outcome, run_parts, small_network

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # rounding alone, after a few steps of a small network


@contextmanager
def stacks_of(clients: int) -> Iterator[None]:
    """Stacks of so many clients, whatever their size."""
    before = Lockstep.bytes_of
    Lockstep.bytes_of = lambda self, samples, longest: self.bytes // clients  # type: ignore[method-assign]
    try:
        yield
    finally:
        Lockstep.bytes_of = before  # type: ignore[method-assign]


def in_stacks(clients: int, what: Any, federation: Federation, **options: Any) -> Outcome:
    """A run in stacks of so many clients."""
    with stacks_of(clients):
        return run_parts(what, federation, **{**options, "lockstep": "on"})


def together(what: Any, federation: Federation, *runs: dict[str, Any]) -> list[Outcome]:
    """Runs side by side, whose clients share stacks; each has options of its own, such as a seed or a rate."""
    found: dict[int, Outcome] = {}

    def ended(number: int, how: Ended) -> None:
        if how.error is not None:
            raise how.error
        found[number] = how.value

    def one(own: dict[str, Any], engine: SideBySide) -> Outcome:
        return run_parts(what, federation, engine=engine, **{**own, "lockstep": "on"})

    side_by_side([partial(one, own) for own in runs], ended)
    return [found[number] for number in range(len(runs))]


def check_stacks(part: Part, federation: Federation, settings: dict[str, Any]) -> None:
    """A part that declares `lockstep`: alone, in pairs and all together it gives the same bits, and one by one the same up
    to rounding."""
    if not part.lockstep:
        return
    own = {"loss": None, **settings, "model": lambda: small_network(5, 3), "selection": "all", "cohort": None}
    try:
        found = [in_stacks(clients, part, federation, **own).vector for clients in (1, 2, 50)]
    except BadRequest as sentence:
        raise Broken(f"{part.name} declares lockstep = True, but {sentence}") from sentence
    if not all(torch.equal(found[0], other) for other in found[1:]):
        raise Broken(f"{part.name} declares lockstep = True, and a client's result depends on the others in its stack")
    alone = run_parts(part, federation, **{**own, "lockstep": "off"}).vector
    if not torch.allclose(found[0], alone, rtol=RELATIVE, atol=ABSOLUTE):
        raise Broken(f"{part.name} declares lockstep = True, and gives another result than one by one")
