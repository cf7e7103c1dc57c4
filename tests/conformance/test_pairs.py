"""Every pair of parts on different axes either runs together or is refused, as the list of clashes says.

The runs are a pairwise covering: each holds one part per axis, and together they hold every pair that may meet.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from undrift.core.errors import BadRequest

AXES = {
    "pick": ["", "sampling.fedbss(T1=0)", "sampling.subset"],
    "weigh": ["", "sampling.flood(T=1)"],
    "pull": ["", "objective.fedprox", "objective.scaffold", "objective.feddyn"],
    "term": ["", "objective.moon", "objective.feddecorr", "objective.fednp", "objective.fedlc", "objective.fedrs",
             "objective.fedntd", "objective.fedproto"],
    "look": ["", "objective.fedsam"],
    "personalize": [
        "", "personalize.fliu", "personalize.local", "personalize.apfl", "personalize.fedfomo(M=2)",
        "personalize.ditto", "personalize.fedrep", "personalize.finetune", "personalize.pfedme(lam=2)",
    ],
    "weighting": ["", "weighting.uniform", "weighting.flood", "weighting.bound", "weighting.fednolowe",
                  "weighting.fedasl", "weighting.feddisco", "weighting.aflama"],
    "combine": ["", "combine.fednova", "combine.fedma", "combine.fedcda", "combine.inco", "combine.fedlaw(epochs=1)",
                "combine.median", "combine.krum", "combine.normbound"],
    "server": ["", "server.momentum", "server.fedadam", "server.fedexp", "server.fedmr(T1=0)"],
    "private": ["", "private.norms", "private.head"],
}  # fmt: skip
MOVES_START = {"fliu", "local", "fedfomo"}
IGNORES_WEIGHTS = {"median", "krum", "fedcda", "fedlaw", "inco"}


def name(part: str) -> str:
    return part.partition(".")[2].partition("(")[0]


def clash(first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Whether two (axis, part) pairs cannot be combined."""
    pair = {first, second}
    on = {axis: name(part) for axis, part in pair}
    if not all(on.values()):
        return False
    if set(on) == {"personalize", "combine"}:
        return on["combine"] == "fednova" and (on["personalize"] in MOVES_START or on["personalize"] == "fedrep")
    if set(on) == {"pull", "personalize"}:
        return on == {"pull": "scaffold", "personalize": "fedrep"}
    if set(on) == {"personalize", "server"}:
        return on["server"] == "fedmr" and on["personalize"] in MOVES_START
    if set(on) == {"combine", "server"}:
        return on["server"] == "fedexp" or on == {"combine": "fednova", "server": "fedmr"}
    if set(on) == {"pull", "server"}:
        return on["pull"] == "feddyn"
    if set(on) == {"weighting", "combine"}:
        return on["combine"] in IGNORES_WEIGHTS
    return False


def covering() -> list[tuple[str, ...]]:
    """Greedy: every choice covers as many pairs that are still open as it can."""
    axes = list(AXES)
    cells = [(axis, part) for axis in axes for part in AXES[axis]]
    pairs = [pair for pair in itertools.combinations(cells, 2) if pair[0][0] != pair[1][0]]
    still = {frozenset(pair) for pair in pairs if not clash(*pair)}
    cases = []
    while still:
        chosen = sorted(min(still, key=lambda pair: sorted(pair)))
        while len(chosen) < len(axes):
            taken = {axis for axis, _ in chosen}
            free = [cell for cell in cells if cell[0] not in taken and not any(clash(cell, other) for other in chosen)]
            chosen.append(max(free, key=lambda cell: sum(frozenset((cell, other)) in still for other in chosen)))
        still -= {frozenset(pair) for pair in itertools.combinations(chosen, 2)}
        cases.append(tuple(part for axis in axes for other, part in chosen if other == axis and part))
    return cases


CLASHES = [
    f"{first[1]}+{second[1]}"
    for one, other in itertools.combinations(AXES, 2)
    for first in ((one, part) for part in AXES[one])
    for second in ((other, part) for part in AXES[other])
    if clash(first, second)
]


@pytest.mark.parametrize("parts", covering(), ids="+".join)
def test_runs_together(parts, battery, rows, federation):
    row = type(rows[0])("+".join(parts) or "fedavg", model="norm")
    outcome = battery(row, federation, rounds=2, epochs=2, cohort=5)
    assert [event for event in outcome.events if event[2] not in ("weights",)] == []
    assert torch.isfinite(outcome.vector).all()


@pytest.mark.parametrize("text", CLASHES)
def test_refused_together(text, battery, rows, federation):
    with pytest.raises(BadRequest):
        battery(type(rows[0])(text, model="norm"), federation, rounds=2)
