"""Scoring and evaluation in lock-step: passes of many models at once have the bits of a pass alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undrift.contract.client_data import eval_logits
from undrift.methods.naming import method
from undrift.round.lockstep import passes, serve
from undrift.testing import run_parts, tiny
from undrift.testing.stacks import in_stacks


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, 3))


OWN = {"model": network, "loss": None, "rounds": 2, "batch": 9, "evaluate_every": 1, "evaluate_clients": "all"}
SIZES = [1, 63, 64, 65, 200, 1030, 7]


@pytest.fixture(scope="module")
def runtime():
    return in_stacks(50, "fedproto", tiny(clients=3), **OWN).setup.runtime


def test_a_pass_has_the_same_bits_in_every_company(runtime):
    draws = torch.Generator().manual_seed(0)
    asked = [
        (0.3 * torch.randn(runtime.plan.layout.n, generator=draws), torch.randn(size, 5, generator=draws))
        for size in SIZES
    ]
    together = passes.passes(runtime, asked, features=True)
    for one, (logits, features) in zip(asked, together, strict=True):
        alone = passes.passes(runtime, [one], features=True)[0]
        assert torch.equal(logits, alone[0])
        assert torch.equal(features, alone[1])
        flat = runtime.spare(0)
        flat.load(one[0])
        flat.watch()
        wanted = eval_logits(flat, one[1], runtime.network_input, features=True)
        assert torch.allclose(logits, wanted[0], rtol=1e-4, atol=1e-5)
        assert torch.allclose(features, wanted[1], rtol=1e-4, atol=1e-5)


def test_models_on_one_set_have_the_bits_of_models_on_copies_of_it(runtime):
    x = torch.randn(100, 5, generator=torch.Generator().manual_seed(1))
    vectors = [runtime.initial * (1 + k) for k in range(4)]
    shared = passes.passes(runtime, [(vector, x) for vector in vectors])
    copied = passes.passes(runtime, [(vector, x.clone()) for vector in vectors])
    assert all(torch.equal(one[0], two[0]) for one, two in zip(shared, copied, strict=True))


def test_no_sample_gives_no_logits(runtime):
    assert len(passes.passes(runtime, [(runtime.initial, torch.zeros(0, 5))])[0][0]) == 0


METHODS = ["fedavg", "fedrep", "fedper", "flood", "fedbss", "bound", "fedproto", "sampling.subset(which=high)"]


@pytest.mark.parametrize("name", METHODS)
def test_scores_and_metrics_do_not_depend_on_the_stack(name):
    federation = tiny(clients=5, sizes=[40, 3, 17, 70, 30])
    found = [in_stacks(clients, name, federation, **OWN) for clients in (1, 2, 50)]
    for table in ("metrics", "notes", "events"):
        first, *others = ([*one.store.record.all(f"SELECT * FROM {table}")] for one in found)
        assert all(first == other for other in others)
    one_by_one = run_parts(name, federation, **OWN, lockstep="off").store.record
    losses = "SELECT round, client, stage, data, value FROM metrics WHERE metric = 'loss'"
    for (*what, value), (*same, wanted) in zip(found[2].store.record.all(losses), one_by_one.all(losses), strict=True):
        assert what == same
        assert value == pytest.approx(wanted, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "role"), [("flood", "trained"), ("sampling.subset(which=high)", "received"), ("fedproto", "trained")]
)
def test_the_passes_that_a_part_declares_are_made_together(monkeypatch, name, role):
    """Law: with what it declares, no client scores its training data alone."""
    made, alone = [], []
    ahead = serve.score_ahead
    monkeypatch.setattr(serve, "score_ahead", lambda clients, which: (made.append(which), ahead(clients, which))[1])
    monkeypatch.setattr("undrift.contract.client_data.ClientData.passes", lambda *given: alone.append(given))
    in_stacks(50, name, tiny(clients=4, sizes=[20, 30, 25, 9]), **{**OWN, "rounds": 1})
    assert role in made
    assert not alone
    assert any(role in part.passes(0) for part in method(name).parts)
