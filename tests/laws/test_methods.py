"""Laws of the table of published names, of every part in it, and of what they become together."""

from __future__ import annotations

import inspect

import pytest
import torch

from undrift import testing, text
from undrift.compose import method
from undrift.errors import BadRequest
from undrift.methods import PUBLISHED
from undrift.testing import check, run_parts, small_network

NAMES = [
    "fedavg", "fedavg-uniform", "fedprox", "scaffold", "feddyn", "fedlc", "flood", "fedbss", "fednolowe", "fednova",
    "fedavgm", "fedmr", "fliu", "fliu10", "fliu25", "fliu50", "fliu75", "fliu90", "local", "clt", "apfl", "fedfomo",
    "fedrep", "fedbn", "fedper",
]  # fmt: skip
PLAIN = [
    "fedavg", "fedavg-uniform", "fedprox", "scaffold", "feddyn(alpha=0.5)", "fedlc", "flood(T=1)", "fedbss(T1=0)",
    "fednolowe", "fednova", "fedavgm", "fedmr(T1=0)",
]  # fmt: skip


def part(of: str, axis: str) -> str:
    return method(of).one(axis).name


@pytest.mark.parametrize("name", NAMES)
def test_every_name_says_what_it_is_and_has_the_defaults_of_its_parts(name):
    entry = PUBLISHED[name]
    assert entry.paper
    assert entry.what.endswith(".")
    bundle = entry.factory()
    assert all(p == type(p)() or name.startswith("fliu") for p in (*bundle.brings, *bundle.prefers))
    for parameter in inspect.signature(entry.factory).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty
        assert parameter.default is not inspect.Parameter.empty


@pytest.mark.parametrize("name", NAMES)
def test_every_part_can_be_written_and_read_back(name):
    for piece in method(name).parts:
        table = text.part_tables()[piece.axis]
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


def test_who_weighs_follows_the_three_ranks():
    assert part("scaffold", "weighting") == "uniform"  # preferred
    assert part("scaffold@size", "weighting") == "size"  # named
    assert part("scaffold+flood", "weighting") == "flood"  # brought beats preferred
    assert part("fedbss+scaffold@fednolowe", "weighting") == "fednolowe"
    assert part("flood@fednolowe", "weighting") == "fednolowe"
    with pytest.raises(BadRequest, match="both want to be the weighting"):
        method("flood+fednolowe")


PARTS = {
    text.spell(piece): piece
    for name in (
        *PLAIN, "fliu", "fliu(shuffle=true)", "local", "apfl", "apfl(variant=official)", "fedfomo", "fedrep",
        "flood(control=random)", "flood(phi=permuted)", "flood(scored_by=received, score=ash-b)",
        "fedbss(order=matched)",
        "fedprox(adaptive=true)", "scaffold(scaled=true, normalise=true)", "fedmr(T1=0, unit=module)",
    )
    for piece in method(name).parts if piece.axis != "private"
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS.values(), ids=list(PARTS))
def test_every_part_passes_the_public_battery(part):
    check(part)


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_client_holds_next_is_the_judged_model(tiny, name):
    run = run_parts(name, tiny, rounds=3, evaluate_every=1)
    judged = run.metrics("G", "global")
    held = run.metrics("L1", "global")
    assert held
    for (round, _), accuracy in held.items():
        assert accuracy == judged[round, None]


@pytest.mark.parametrize("name", PLAIN[1:])
def test_every_plain_method_with_its_schedule_active_differs_from_fedavg(tiny, name):
    run, plain = (run_parts(m, tiny, rounds=4) for m in (name, "fedavg"))
    assert not torch.equal(run.vector, plain.vector)
    assert torch.isfinite(run.vector).all()


@pytest.mark.parametrize(
    "together",
    ["fedbss+scaffold@fednolowe", "flood+fedbss", "fedprox+feddyn", "scaffold+fliu", "feddyn+fliu", "fedbn+fliu",
     "flood+scaffold", "flood+fedlc", "fednova+scaffold", "fednova+fedprox", "scaffold+fedavgm",
     "fedper+scaffold+flood",
     "apfl+flood+fedlc", "fedfomo+fedprox", "fedrep+flood", "fedmr(T1=0)+scaffold", "fedbn+fedfomo", "fedbn+apfl"],
)  # fmt: skip
def test_parts_run_together(tiny, together):
    run = run_parts(together, tiny, rounds=4, cohort=0.5, model=lambda: small_network(5, 3, norm=True, dropout=0.2))
    assert torch.isfinite(run.sent).all()
    assert run.events == []


def test_a_nan_client_is_left_out_as_if_it_had_dropped(tiny):
    broken = testing.tiny()
    broken.x[broken.rows(1)] = float("nan")
    for name in ("scaffold", "feddyn(alpha=0.5)", "flood(T=1)", "fedbss(T1=0)", "fedfomo", "apfl"):
        run = run_parts(name, broken, rounds=3)
        assert torch.isfinite(run.sent).all()
        assert {(client, kind) for _, client, kind, _ in run.events} == {(1, "nonfinite")}
        absent = run_parts(name, tiny, rounds=3, lose={(round, 1) for round in range(3)})
        assert torch.equal(run.vector, absent.vector)
