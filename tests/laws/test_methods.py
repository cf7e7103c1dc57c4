"""Laws of the table of published names and of every part in it. Their combinations are tested in tests/conformance."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from undrift import testing
from undrift.core import text
from undrift.methods import naming
from undrift.methods.naming import method
from undrift.methods.published import PUBLISHED
from undrift.testing import check, run_parts

NAMES = list(PUBLISHED)
OTHER_DEFAULTS = {
    "fedproto",
    "fliu10",
    "fliu25",
    "fliu50",
    "fliu75",
    "fliu90",
    "multikrum",
}  # these names stand for other values
# With their defaults these would have no effect in runs as short as these, or take long.
ACTIVE = {
    "feddyn": "feddyn(alpha=0.5)", "flood": "flood(T=1)", "fedbss": "fedbss(T1=0)", "fedmr": "fedmr(T1=0)",
    "fedcda": "fedcda(warmup=0)", "fedlaw": "fedlaw(epochs=1)",
}  # fmt: skip
VARIANTS = [
    "fliu(shuffle=true)", "apfl(variant=official)", "flood(control=random)", "flood(phi=permuted)",
    "flood(scored_by=received, score=ash-b)", "fedbss(order=matched)", "fedprox(adaptive=true)",
    "scaffold(scaled=true, normalise=true)", "fedmr(T1=0, unit=module)",
]  # fmt: skip
SAME_PART = {"fliu10", "fliu25", "fliu75", "fliu90"}  # fliu50's, with another number
PLAIN = [name for name in NAMES if method(name).one("personalize") is None and not method(name).on("private")]


def default(kind):
    """The part without parameters; None where one must be given."""
    try:
        return kind()
    except TypeError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_every_name_says_what_it_is_and_has_the_defaults_of_its_parts(name):
    entry = PUBLISHED[name]
    assert entry.paper
    assert entry.what.endswith(".")
    bundle = entry.factory()
    assert all(p == default(type(p)) for p in (*bundle.brings, *bundle.prefers)) == (name not in OTHER_DEFAULTS)
    for parameter in inspect.signature(entry.factory).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty
        assert parameter.default is not inspect.Parameter.empty


@pytest.mark.parametrize("name", NAMES)
def test_every_part_can_be_written_and_read_back(name):
    for piece in method(name).parts:
        table = naming.part_tables()[piece.axis]
        assert text.build(piece.axis, text.spell(piece), table) == piece


def test_parameters_of_a_name_reach_its_parts():
    parts = {
        p.key: p
        for p in method("flood(q=0.3, a=2, T=9, score=gen, alpha=2, norm_phi=sum, control=mean, phi=constant)").parts
    }
    samples, clients = parts["sampling.flood"], parts["weighting.flood"]
    assert (samples.q, samples.a, samples.T, samples.score, samples.control) == (0.3, 2, 9, "gen", "mean")
    assert (clients.alpha, clients.norm_phi, clients.score, clients.phi) == (2, "sum", "gen", "constant")
    bss = method("fedbss(T1=3, boundary=top, level=4, pacing=linear, order=random)").on("sampling")[0]
    assert (bss.T1, bss.boundary, bss.level, bss.pacing, bss.order) == (3, "top", 4, "linear", "random")
    nolowe = method("fednolowe(loss=last, normalise=minmax, invert=rank, reverse=true)").one("weighting")
    assert (nolowe.loss, nolowe.normalise, nolowe.invert, nolowe.reverse) == ("last", "minmax", "rank", True)
    assert method("fliu(steps=[[2, 0.5], [0, 0.25]])").one("personalize").steps == ((2, 0.5), (0, 0.25))


PARTS = {
    f"{piece.axis}.{text.spell(piece)}": piece
    for name in (*(ACTIVE.get(name, name) for name in NAMES if name not in SAME_PART), *VARIANTS)
    for piece in method(name).parts
}


@pytest.mark.parametrize("part", PARTS.values(), ids=list(PARTS))
def test_every_part_passes_the_public_conformance_checks(part):
    """Two rounds of one epoch. The slow tests of `tests/core/test_check_part.py` do the same at full length."""
    epochs = 2 if part.key == "personalize.fedrep" else 1  # the head, then the body
    check(part, rounds=2, epochs=epochs)


@pytest.fixture(scope="module")
def proxied() -> testing.Toy:
    """Five clients, because Krum needs them, and the proxy set that AFLAMA and FedLAW need."""
    federation = testing.tiny(clients=5)
    federation.proxy_rows = np.arange(0, len(federation.y), 9)
    return federation


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_client_uses_the_evaluated_model_in_the_next_round(proxied, name):
    own = {"model": lambda: testing.adapted_network(5, 3, merged=True)} if testing.needs_adapters(name) else {}
    run = run_parts(ACTIVE.get(name, name), proxied, rounds=3, evaluate_every=1, **own)
    for metric in ("accuracy", "loss"):
        evaluated, held = run.metrics("G", "global", metric), run.metrics("L1", "global", metric)
        assert set(held) == {(round, client) for round in range(3) for client in range(5)}
        assert all(value == evaluated[round, None] for (round, _), value in held.items())
