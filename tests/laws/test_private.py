"""Laws of FedRep, FedPer and FedBN: entries that never leave their client."""

from __future__ import annotations

import pytest
import torch

from undrift import testing
from undrift.core.errors import BadRequest
from undrift.federation.federation import Federation
from undrift.methods import personalize
from undrift.testing import run_parts, small_network


def normed():
    return small_network(5, 3, norm=True)


def test_fedrep_trains_the_head_first_and_the_body_last(job, planned):
    plan = planned(epochs=4)
    head = plan.layout.mask(["2.weight", "2.bias"])[: plan.layout.nP]
    client = job(plan=plan, received=torch.zeros(plan.layout.n))
    masks = [personalize.fedrep(body_epochs=1).update_mask(client, epoch) for epoch in range(4)]
    assert all(torch.equal(mask, head) for mask in masks[:3])
    assert torch.equal(masks[3], ~head)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1, "momentum": 0.9}, {"optimizer": "adam"}])
def test_fedrep_does_not_move_the_fixed_half(tiny, options):
    # One epoch of the head, then one of the body: the body after round 0 is that of one epoch from the initial body.
    run = run_parts("fedrep", tiny, rounds=1, epochs=2, **options)
    only_head = run_parts(["personalize.fedrep(body_epochs=1)"], tiny, rounds=1, epochs=2, **options)
    assert not torch.equal(run.vector, run.setup.runtime.initial)
    head = run.setup.plan.layout.mask(["2.weight", "2.bias"])
    assert torch.equal(run.vector[head], run.setup.runtime.initial[head])  # private: the server keeps Θ⁰'s
    assert not torch.equal(only_head.vector[head], run.setup.runtime.initial[head])
    assert torch.equal(only_head.vector[~head], run.vector[~head])


def test_fedrep_without_an_epoch_for_the_head_is_refused(tiny):
    with pytest.raises(BadRequest, match="never trains the head"):
        run_parts("fedrep", tiny, epochs=1)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedprox(mu=0.5)", "feddyn", "scaffold+fedprox"])
def test_an_all_private_client_equals_local_training_bit_for_bit(tiny, method):
    for momentum in (0.0, 0.9):
        private = run_parts([method, 'private.named("*")'], tiny, momentum=momentum, model=normed)
        alone = run_parts("local", tiny, momentum=momentum, model=normed)
        for client in range(4):
            assert torch.equal(private.raw_state(client)["private"]["vector"], alone.state(client))
        assert torch.equal(private.sent, private.setup.runtime.initial)  # nothing ever left a client


@pytest.mark.parametrize(
    ("name", "entries"), [("fedper", ["3.weight", "3.bias"]), ("fedbn", ["1.weight", "1.running_var"])]
)
def test_private_entries_never_reach_the_server(tiny, name, entries):
    for method in (name, f"{name}+scaffold", f"{name}+feddyn", f"{name}+fedavgm", f"{name}+fliu"):
        run = run_parts(method, tiny, model=normed)
        layout, initial = run.setup.plan.layout, run.setup.runtime.initial
        for entry in entries:
            assert torch.equal(layout.part(run.sent, entry), layout.part(initial, entry))
        if "scaffold" in method:
            mask = run.setup.plan.private[: layout.nP]
            assert (run.memory[mask] == 0).all()
            assert (run.memory[~mask] != 0).any()


def test_identical_clients_with_private_norms_stay_identical():
    data = testing.tiny()
    rows = [(data.x[:20], data.y[:20], data.x[:4], data.y[:4])] * 2
    same = Federation.from_clients(rows, name="same", labels=["0", "1", "2"])
    run = run_parts("fedbn", same, model=normed, batch=20)
    assert torch.allclose(run.raw_state(0)["private"]["vector"], run.raw_state(1)["private"]["vector"], atol=1e-5)
