"""A deployment's rounds give the same bits as a simulation of the same clients."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.contract.declare import size_in_bytes
from undrift.core.errors import BadRequest
from undrift.methods.published import PUBLISHED


@pytest.mark.parametrize(
    "method", ["fedavg", "scaffold+fliu", "feddyn", "fednp", "flood@bound", "apfl", "fedmr", "fedfomo"]
)
def test_the_global_vector_is_that_of_the_simulation_bit_for_bit(method, deploy, simulate):
    deployed, simulated = deploy(method).serve(), simulate(method)
    assert torch.equal(deployed.vector, simulated.vector)
    assert deployed.summary["model_sha256"] == simulated.summary["model_sha256"]


# Rules with ranges of their own, and steps that proximal terms shorten or a sampling changes.
VARIANTS = (
    "fedavg+flood(score=msp)", "fedavg+flood(score=gen)", "bound(invert=mean_loss)", "bound(invert=sqrt_v)",
    "bound(loss=ce,finite=true)", "bound(loss=zero_one,moment=1)", "moon(head=true)", "fedprox(0.1)+fednova",
    "scaffold+fednova", "fedavg+mix([size(), bound(), feddisco()], [1, 1, 1])",
)  # fmt: skip


@pytest.mark.parametrize("method", [*PUBLISHED, *VARIANTS])
def test_no_check_refuses_an_honest_site(method, deploy):
    deployment = deploy(method, rounds=2, epochs=2, evaluate_every=1)
    try:
        deployment.serve()
    except BadRequest as refused:
        pytest.skip(str(refused))  # it needs what a deployment does not have
    assert {kind for _, kind in deployment.kinds()} <= {"joined", "weights"}, deployment.events()


def test_stages_evaluated_at_the_sites_equal_the_simulation(deploy, simulate):
    deployment, simulated = deploy(), simulate()
    deployment.serve()
    for stage in ("L1", "L2"):
        rows = simulated.rows(
            "SELECT round, client, value FROM metrics WHERE stage=? AND data='own' AND metric='accuracy'", (stage,)
        )
        assert deployment.metrics(stage) == {(round, client): value for round, client, value in rows}
    assert set(deployment.metrics("G")) == set(deployment.metrics("L1"))


def test_every_site_ends_with_the_global_and_its_personal_model_on_disk(deploy, simulate):
    deployment, simulated = deploy(), simulate()
    deployment.serve()
    x = torch.randn(5, 1, 8, 8)
    for number, site in enumerate(("berlin", "oslo", "turin")):
        models = ud.load(deployment.site_folder(site))
        assert torch.equal(models.model(x), simulated.model(x))
        assert torch.equal(models.personal()(x), simulated.personal(number)(x))


def test_a_round_is_one_exchange_and_the_last_evaluation_another(deploy):
    deployment = deploy(rounds=4, evaluate_every=1)
    deployment.serve()
    orders = [envelope for _, envelope in deployment.transport.down if envelope.head["kind"] == "orders"]
    assert len(orders) == 3 * (4 + 1)
    assert [len(envelope.head["orders"]) for envelope in orders] == [1] * 3 + [2] * 9 + [1] * 3
    evaluation, training = orders[5].head["orders"]  # sent together, with one copy of the vector
    assert evaluation["vector"] == training["vector"]


def test_a_sites_log_equals_the_bytes_counted_at_the_server(deploy):
    deployment = deploy()
    deployment.serve()
    traffic = [json.loads(line) for line in (deployment.run / "border.jsonl").read_text().splitlines()]
    for node, site in ((100, "berlin"), (99, "oslo"), (98, "turin")):
        log = [json.loads(line) for line in (deployment.site_folder(site) / "left.jsonl").read_text().splitlines()]
        assert sum(line["bytes"] for line in log) == sum(
            envelope.bytes for n, envelope in deployment.transport.up if n == node
        )
        counted = [line["bytes"] for line in traffic if line["site"] == site and line["way"] == "up"]
        assert counted == [line["bytes"] for line in log]
        assert [line["kind"] for line in log[:2]] == ["roll", "replies"]


def test_only_shared_entries_and_declared_messages_travel(deploy):
    deployment = deploy("scaffold", model="mlp(8)", private="head", rounds=2, evaluate_every=9)
    result = deployment.serve()
    plan = result.setup.plan
    shared = int((~plan.private).sum())
    assert shared == 8 * 64 + 8
    (scaffold,) = [part for part in plan.method.parts if part.name == "scaffold"]
    for _, envelope in deployment.transport.up:
        if envelope.head["kind"] == "replies" and envelope.head["replies"][0]["work"] == "train":
            arrays = {name: tensor.numel() for name, tensor in envelope.arrays.items()}
            assert arrays == {"train.vector": shared, "train.objective.scaffold.change": shared}
            assert 4 * shared == size_in_bytes(scaffold.uplink, plan)


def test_private_entries_give_the_same_bits_too(deploy, simulate):
    more = {"model": "mlp(8)", "private": "head"}
    deployed, simulated = deploy("scaffold+fliu", **more).serve(), simulate("scaffold+fliu", **more)
    assert torch.equal(deployed.vector, simulated.vector)


def with_norm() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 10)
    )


@pytest.mark.parametrize("method", ["scaffold", "fedbn"])
def test_statistics_counters_and_dropout_give_the_same_bits_too(method, deploy, simulate):
    deployment = deploy(method, model=with_norm, rounds=3)
    deployed, simulated = deployment.serve(), simulate(method, model=with_norm, rounds=3)
    assert torch.equal(deployed.vector, simulated.vector)
    assert {k: int(v) for k, v in deployed.server_state.integers.items()} == {
        k: int(v) for k, v in simulated.server_state.integers.items()
    }
    if method == "fedbn":  # neither the statistics nor their counter leave the site
        assert all("integers" not in name for _, envelope in deployment.transport.up for name in envelope.arrays)


def test_the_parts_notes_stay_at_the_site(deploy):
    deployment = deploy("fliu", rounds=2)
    deployment.serve()
    notes = [json.loads(line) for line in (deployment.site_folder("oslo") / "notes.jsonl").read_text().splitlines()]
    assert {note["name"] for note in notes} == {"gamma"}
    assert not any("gamma" in envelope.text for _, envelope in deployment.transport.up)


def test_a_server_with_its_own_test_set_evaluates_g_on_it(deploy, tmp_path):
    (tmp_path / "test.py").write_text(
        "import numpy as np\ndef test():\n    return np.zeros((7, 8, 8), 'float32'), np.arange(7)\n"
    )
    deployment = deploy("fedavg", rounds=2)
    result = deployment.serve(data=str(tmp_path / "test.py"))
    assert result.summary["accuracy"] in [k / 7 for k in range(8)]
