"""The frozen parameters of a deployment: named in the handshake, sent once to a site that has others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.testing import LowRank

FROZEN, TRAINED = 64 * 16 + 16, 16 * 10 + 10


class Machine:
    """Where the network is made: the site's first layer has other values than the server's, if `differs`."""

    def __init__(self, differs: bool) -> None:
        self.differs, self.at_site = differs, False

    def network(self) -> nn.Module:
        torch.manual_seed(7 if self.differs and self.at_site else 1)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        module[1].requires_grad_(False)
        return module

    def watch(self, deployment) -> None:
        def before(transport, node, envelope):
            self.at_site = True

        def after(node, envelope, reply):
            self.at_site = False
            return reply

        deployment.transport.before_send, deployment.transport.change_reply = before, after


def served(deploy, differs: bool, **more):
    machine = Machine(differs)
    deployment = deploy("scaffold", model=machine.network, **more)
    machine.watch(deployment)
    result = deployment.serve()
    return machine, deployment, result


def bases_sent(deployment) -> list[int]:
    return [node for node, envelope in deployment.transport.down if "frozen" in envelope.arrays]


def test_sites_with_the_same_base_get_none_and_give_a_simulations_bits(deploy, simulate):
    machine, deployment, result = served(deploy, differs=False)
    assert not bases_sent(deployment)
    assert torch.equal(result.vector, simulate("scaffold", model=machine.network).vector)


def test_sites_with_another_base_get_it_once_and_give_the_same_bits(deploy, simulate):
    machine, deployment, result = served(deploy, differs=True)
    assert sorted(bases_sent(deployment)) == [98, 99, 100]
    assert torch.equal(result.vector, simulate("scaffold", model=machine.network).vector)
    assert not [kind for _, kind in deployment.kinds() if kind == "refused"]


@pytest.mark.parametrize("differs", [False, True])
def test_orders_and_replies_carry_what_is_trained_and_nothing_else(deploy, differs):
    _, deployment, _ = served(deploy, differs)
    orders = [envelope for _, envelope in deployment.transport.down if envelope.head["kind"] == "orders"]
    replies = [envelope for _, envelope in deployment.transport.up if envelope.head["kind"] == "replies"]
    assert len(orders) == len(replies) >= 15
    for envelope in (*orders, *replies):
        assert all(array.numel() == TRAINED for array in envelope.arrays.values())
    trained = [e for e in replies if any(r["work"] == "train" for r in e.head["replies"])]
    assert all(sum(array.nbytes for array in e.arrays.values()) == 2 * 4 * TRAINED for e in trained)  # θ and Δc


def site_base(deployment) -> Path:
    return deployment.site_folder("berlin") / "base.safetensors"


def test_a_changed_base_file_at_a_site_is_refused_in_one_sentence(deploy, capfd):
    machine = Machine(differs=True)
    deployment = deploy("fedavg", model=machine.network, rounds=3)
    machine.watch(deployment)
    watched, damaged = deployment.transport.before_send, []

    def before(transport, node, envelope):
        watched(transport, node, envelope)
        if node == 100 and envelope.head["kind"] == "orders" and not damaged:
            data = bytearray(site_base(deployment).read_bytes())
            data[-1] ^= 1
            site_base(deployment).write_bytes(bytes(data))
            damaged.append(node)

    deployment.transport.before_send = before
    deployment.serve()
    said = capfd.readouterr().err
    assert "base.safetensors has SHA-256" in said
    assert "remove the file, and the server sends it again" in said


def test_a_removed_base_file_is_sent_again(deploy, simulate):
    machine = Machine(differs=True)
    deployment = deploy("fedavg", model=machine.network, rounds=4)
    machine.watch(deployment)
    watched, removed = deployment.transport.before_send, []

    def before(transport, node, envelope):
        watched(transport, node, envelope)
        if node == 100 and envelope.head["kind"] == "orders" and not removed:
            site_base(deployment).unlink()
            removed.append(node)

    deployment.transport.before_send = before
    deployment.serve()
    assert bases_sent(deployment).count(100) == 2
    assert site_base(deployment).exists()


def adapted() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), LowRank(nn.Linear(64, 16), 2, merged=True), nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.parametrize("method", ["ffa-lora", "fedsa-lora+scaffold@fednolowe", "flexlora", "flora", "hetlora"])
def test_methods_on_adapters_give_a_simulations_bits(method, deploy, simulate):
    deployed = deploy(method, model=adapted, rounds=3).serve()
    assert torch.equal(deployed.vector, simulate(method, model=adapted, rounds=3).vector)


@pytest.mark.parametrize("upload", [None, "quantize(8)"])
def test_what_only_the_server_changes_travels_down_and_not_up(upload, deploy, simulate):
    """FLoRA's second tree: a reply has both factors and the head, and not the 64 × 16 entries of the tree."""
    trained, tree = 2 * (64 + 16) + 16 * 10 + 10, 64 * 16
    options = {"model": adapted, "rounds": 3, **({"upload": upload} if upload else {})}
    deployment = deploy("flora", **options)
    deployed = deployment.serve()
    down, up = (
        [
            max(array.numel() for array in envelope.arrays.values())
            for _, envelope in sent
            if envelope.head["kind"] == kind and envelope.arrays
        ]
        for sent, kind in ((deployment.transport.down, "orders"), (deployment.transport.up, "replies"))
    )
    assert set(down) == {trained + tree}
    assert set(up) == {trained}
    assert torch.equal(deployed.vector, simulate("flora", **options).vector)


def test_an_app_that_was_made_with_another_base_does_not_start(deploy):
    from dataclasses import replace

    deployment = deploy("fedavg", model=Machine(False).network)
    deployment.transport.spec = replace(deployment.transport.spec, base="0" * 64)
    with pytest.raises(BadRequest, match=r"those that the app in .* was made with 0000000000000000…; restore"):
        deployment.serve()


def test_a_site_needs_no_file_that_the_run_started_from(deploy, simulate, tmp_path):
    import safetensors.torch

    machine, file = Machine(False), tmp_path / "first.safetensors"
    state = machine.network().state_dict()
    safetensors.torch.save_file({name: value + 0.125 for name, value in state.items()}, file)
    deployment = deploy("fedavg", model=machine.network, init=str(file), rounds=2)
    simulated = simulate("fedavg", model=machine.network, init=str(file), rounds=2).vector
    kept = file.read_bytes()

    def hide(transport, node, envelope):
        file.unlink(missing_ok=True)

    def show(node, envelope, reply):
        file.write_bytes(kept)
        return reply

    deployment.transport.before_send, deployment.transport.change_reply = hide, show
    assert torch.equal(deployment.serve().vector, simulated)
    assert sorted(bases_sent(deployment)) == [98, 99, 100]  # the file's values are in no site's own network
