"""Stages G, L1 and L2 in every run, and what a run gives back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.testing import run_parts, small_network
from undrift.testing import tiny as make_tiny

# One mean, other models to other clients, another model evaluated than sent; tests/laws/test_methods.py has all plain names.
PLAIN = ["fedavg", "fedmr(T1=0)", "fedexp"]


def norm_network():
    return small_network(5, 3, norm=True)


@pytest.mark.parametrize("method", PLAIN)
def test_for_a_plain_method_acc_of_l1_on_the_whole_test_set_is_g(tiny, method):
    run = run_parts(method, tiny, evaluate_every=1)
    for metric in ("accuracy", "loss"):
        whole, held = run.metrics("G", "global", metric), run.metrics("L1", "global", metric)
        assert {(t, k) for t, k in held} == {(t, k) for t in range(3) for k in range(4)}
        assert all(value == whole[t, None] for (t, _), value in held.items())


@pytest.mark.parametrize("method", ["fliu", "apfl", "ditto", "finetune", "fedper", "local"])
def test_for_a_personal_method_clients_hold_something_of_their_own(tiny, method):
    run = run_parts(method, tiny, evaluate_every=1)
    assert len({value for (t, _), value in run.metrics("L1", "global", "loss").items() if t == 2}) > 1


def test_l1_and_l2_are_evaluated_every_so_often_and_at_the_last_round_g_always(tiny):
    run = run_parts("fedavg", tiny, rounds=5, evaluate_every=2)
    assert sorted({t for t, _ in run.metrics("L2", "own")}) == [1, 3, 4]
    assert sorted({t for t, _ in run.metrics("G", "global")}) == [0, 1, 2, 3, 4]


def test_only_participants_are_evaluated_unless_all_are_asked_for(tiny):
    cohort = run_parts("fedavg", tiny, cohort=2, rounds=4, evaluate_every=1)
    assert all(len([k for t, k in cohort.metrics("L1", "own") if t == round]) == 2 for round in range(4))
    every = run_parts("fedavg", tiny, cohort=2, rounds=4, evaluate_every=1, evaluate_clients="all")
    assert all(len([k for t, k in every.metrics("L1", "own") if t == round]) == 4 for round in range(4))
    trained = set()
    for round in range(
        4
    ):  # an absent client's L2 is what it held after its last training; one that never trained has none
        trained |= {k for t, k in cohort.metrics("L2", "own") if t == round}
        assert {k for t, k in every.metrics("L2", "own") if t == round} == trained


def test_aggregated_batchnorm_statistics_are_the_weighted_mean(tiny):
    run = run_parts("fedavg", tiny, rounds=1, model=norm_network, evaluate_clients="all")
    layout = run.setup.plan.layout
    held = [run.raw_state(client)["held"] for client in range(4)]
    sizes = [24, 29, 34, 39]
    for name in ("1.running_mean", "1.running_var"):
        mean = sum(n * layout.part(v, name).double() for n, v in zip(sizes, held)) / sum(sizes)
        assert torch.allclose(layout.part(run.vector, name).double(), mean, atol=1e-6)
        assert not torch.equal(layout.part(run.vector, name), layout.part(run.setup.runtime.initial, name))


def test_integer_buffers_take_the_maximum(tiny):
    run = run_parts("fedavg", tiny, rounds=1, model=norm_network)
    assert (
        run.server_state.integers["1.num_batches_tracked"].item() == 2 * 3
    )  # epochs times the batches of the largest client


@pytest.mark.parametrize("method", ["scaffold", "fedprox(mu=0.5)", "feddyn"])
def test_an_all_private_client_equals_local_training_bit_for_bit(tiny, method):
    alone = run_parts("local", tiny, evaluate_clients="all")
    run = run_parts([method, ud.private.named("*")], tiny, evaluate_clients="all")
    for client in range(4):
        assert torch.equal(run.raw_state(client)["held"], alone.raw_state(client)["held"])
        assert torch.equal(run.raw_state(client)["private"]["vector"], alone.raw_state(client)["held"])
    assert torch.equal(run.vector, run.setup.runtime.initial)  # the server never hears of anything


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "fednp", "fedfomo", "fedmr(T1=0)", "moon(head=true)"])
def test_no_private_entry_is_in_any_message(tiny, method, monkeypatch):
    """Every float that leaves a client is compared with the private entries it trained."""
    from undrift.round.engine import Engine

    left, secrets = [], []
    work = Engine.map

    def watching(self, orders):
        replies = work(self, orders)
        for reply in replies:
            if reply.vector is not None:
                left.append((reply.client, reply.vector, reply.client_messages))
                state = self.states.get("state", reply.client, reply.round)
                secrets.append(state["private"]["vector"])
        return replies

    monkeypatch.setattr(Engine, "map", watching)
    run = run_parts([method, ud.private.head()], tiny)
    mask = run.setup.plan.private
    initial = run.setup.runtime.initial
    assert left
    for (_, vector, messages), secret in zip(left, secrets):
        assert torch.equal(vector[mask], initial[mask])
        known = set(secret.tolist())
        for message in messages.values():
            for value in message.values():
                for tensor in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(tensor, torch.Tensor):
                        assert not known & set(tensor.tolist())
    assert torch.equal(run.sent[mask], initial[mask])


def test_with_private_entries_there_is_no_global_model(tiny, tmp_path):
    result = ud.run("fedper", tiny, model=tiny.model, rounds=2, out=tmp_path / "run", cohort=1.0)
    assert result.accuracy is None
    assert result.summary["stages"]["G"] is None
    assert result.summary["stages"]["L1"]["acc_local"]["mean"] is not None
    with pytest.raises(BadRequest, match="personal"):
        _ = result.model
    import safetensors.torch

    assert sorted(safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")) == ["0.bias", "0.weight"]
    assert not torch.equal(result.personal(0)[2].weight, result.personal(1)[2].weight)


def test_a_loaded_run_gives_its_model_and_its_clients_models(tiny, tmp_path):
    result = ud.run("fliu", tiny, model=tiny.model, rounds=2, out=tmp_path / "run", cohort=1.0)
    again = ud.load(tmp_path / "run", federation=tiny, model=tiny.model)
    assert isinstance(again.model, nn.Module)
    assert not again.model.training
    x = tiny.test_x
    assert torch.equal(again.model(x), result.model(x))
    assert again.summary["model_sha256"] == result.summary["model_sha256"]
    for client in range(4):
        assert torch.equal(again.personal(client)(x), result.personal(client)(x))
        hits = (again.personal(client)(x).argmax(1) == tiny.test_y).double().mean().item()
        ((value,),) = again.rows("SELECT value FROM metrics WHERE stage='L1' AND data='global' AND metric='accuracy' "
                                 "AND client=? ORDER BY round DESC LIMIT 1", (client,))  # fmt: skip
        assert hits == value
    with pytest.raises(BadRequest, match="no client 9"):
        again.personal(9)


def test_a_mixture_is_a_module_too(tiny, tmp_path):
    result = ud.run("apfl", tiny, model=tiny.model, rounds=2, out=False, cohort=1.0)
    assert result.personal(1)(tiny.test_x).shape == (len(tiny.test_y), 3)


def test_the_exported_model_is_the_evaluated_one(tiny, tmp_path):
    import safetensors.torch

    result = ud.run("fedexp", tiny, model=tiny.model, rounds=2, out=tmp_path / "run")
    module = tiny.model()
    module.load_state_dict(safetensors.torch.load_file(tmp_path / "run" / "model.safetensors"))
    assert torch.equal(module(tiny.test_x), result.model(tiny.test_x))
    assert torch.equal(result.vector, result.server_state.evaluated)
    assert not torch.equal(result.server_state.vector, result.server_state.evaluated)


def test_a_client_without_a_test_slice_is_left_out_of_acc_l_and_counted():
    x, y = make_tiny().train(0)
    empty = x[:0], y[:0]
    clients = [(x, y, x[:5], y[:5]), (x, y, *empty)]
    federation = ud.Federation.from_clients(clients, labels=["a", "b", "c"])
    result = ud.run("fedavg", federation, model=lambda: small_network(5, 3), rounds=1, out=False, cohort=1.0)
    assert result.summary["stages"]["L1"]["without_slice"] == 1
    assert result.summary["stages"]["L1"]["clients"] == 2


def test_the_training_loss_is_recorded_as_a_curve():
    """One row per round: the clients' losses during local training, by their numbers of samples, as the notes have them."""
    import json

    federation = ud.federate("digits", "dirichlet(0.5)", clients=4, seed=0)
    run = ud.run("fedavg", federation, rounds=2, cohort=1.0, model="mlp(8)", out=False)
    curve = run.rows("SELECT round, client, value FROM metrics WHERE stage='train' AND data='train' AND metric='loss'")
    assert [(round, client) for round, client, _ in curve] == [(0, None), (1, None)]
    for round, _, value in curve:
        noted = run.rows("SELECT client, value FROM notes WHERE name='loss' AND round=?", (round,))
        by_hand = sum(int(federation.sizes[client]) * json.loads(loss) for client, loss in noted) / sum(
            federation.sizes
        )
        assert value == pytest.approx(float(by_hand))


@pytest.mark.parametrize("method", ["fedavg", "fliu"])
def test_clients_can_be_evaluated_on_their_own_slices_only(tiny, method, monkeypatch):
    """The same accuracies on the clients' slices, nothing on the whole test set but G, and only the slices are passed."""
    from undrift.evaluate import client as evaluation

    passed = []

    def counting(runtime, mixture, integers, x):
        passed.append(len(x))
        return real(runtime, mixture, integers, x)

    real = evaluation.mixed_logits
    monkeypatch.setattr(evaluation, "mixed_logits", counting)
    both = run_parts(method, tiny, evaluate_every=1, evaluate_clients="all")
    passed.clear()
    own = run_parts(method, tiny, evaluate_every=1, evaluate_clients="all", evaluate_on="own")
    assert torch.equal(own.vector, both.vector)
    for stage in ("L1", "L2"):
        assert own.metrics(stage, "own") == both.metrics(stage, "own")
        assert own.metrics(stage, "global") == {}
        assert len(both.metrics(stage, "global")) == 12
    assert own.metrics("G", "global") == both.metrics("G", "global")
    assert set(passed) == {12}  # a slice; the test set has 48
