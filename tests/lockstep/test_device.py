"""On a device nothing waits for a loss that no hook needs. A fake one: the processor, treated as a device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from undrift.core import system
from undrift.experiment.engines import choose_engine
from undrift.round.lockstep.stack import Stack
from undrift.testing import tiny
from undrift.testing.stacks import in_stacks


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, 3))


def curved() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 17), nn.Tanh(), nn.Linear(17, 3))


def federation():
    """Client 1 has only samples that are not finite and gives up, client 2 has one such sample and skips its batches."""
    found = tiny(clients=5, sizes=[40, 30, 33, 9, 1])
    found.x[torch.from_numpy(found.rows(1))] = torch.nan
    found.x[found.rows(2)[4]] = torch.inf
    return found


@pytest.fixture
def device(monkeypatch):
    """Call it, and from then on stacks take the processor for a device."""
    return lambda: monkeypatch.setattr(Stack, "on_device", lambda self: True)


OWN = {"loss": None, "momentum": 0.9, "weight_decay": 1e-3, "batch": 8, "epochs": 3, "evaluate_every": 1}


@pytest.mark.parametrize("model", [network, curved])
@pytest.mark.parametrize(
    "name", ["fedavg", "fedrep", "fednova", "fedprox", "scaffold", "fedlc"]
)  # fedlc has to know losses
@pytest.mark.parametrize("more", [{}, {"clip": 0.05, "persist_momentum": True}, {"optimizer": "adam", "lr": 0.01}])
def test_steps_that_are_masked_and_counted_later_have_the_bits_of_steps_that_are_read(device, name, model, more):
    if name in ("fednova", "scaffold") and (more.get("persist_momentum") or "optimizer" in more):
        pytest.skip("it needs SGD with a momentum that starts anew")
    own = {**OWN, "model": model, **more}
    read = in_stacks(50, name, federation(), **own)
    device()
    later = in_stacks(50, name, federation(), **own)
    assert torch.equal(read.vector, later.vector)
    for table in ("metrics", "notes", "events"):
        assert list(read.store.record.all(f"SELECT * FROM {table}")) == list(
            later.store.record.all(f"SELECT * FROM {table}")
        )
    assert (1, "nonfinite") in {event[1:3] for event in later.events}


READING = ("tolist", "item", "__bool__", "__float__", "__int__", "numpy", "cpu", "nonzero")


@pytest.mark.parametrize("name", ["fedavg", "fedprox(mu=0.1)", "scaffold", "feddyn", "feddyn(decay=true)"])
def test_a_stack_reads_once_however_many_steps_it_takes(device, monkeypatch, name):
    device()
    reads, inside = [], []
    run = Stack.run

    def counted(self):
        inside.append(self)
        run(self)
        inside.clear()

    def reading(name, how):
        def read(tensor, *given, **more):
            if inside:
                reads.append(name)
            return how(tensor, *given, **more)

        return read

    monkeypatch.setattr(Stack, "run", counted)
    for how in READING:
        monkeypatch.setattr(torch.Tensor, how, reading(how, getattr(torch.Tensor, how)))
    for epochs in (1, 4):
        reads.clear()
        in_stacks(50, name, federation(), **{**OWN, "model": network, "epochs": epochs, "rounds": 1})
        # All losses after the last step. FedAvg asks before whether all are finite.
        assert reads == (["__bool__", "tolist"] if name == "fedavg" else ["tolist"])


def test_several_workers_share_a_device_if_they_are_asked_for(monkeypatch):
    def chosen(workers, kind="cuda"):
        runtime = SimpleNamespace(model=SimpleNamespace(device=torch.device(kind)))
        return choose_engine(SimpleNamespace(runtime=runtime, options=SimpleNamespace(workers=workers)), workers or 8)

    assert chosen(None) == chosen(1) == ("inline", "one device does the work")
    assert chosen(3) == chosen(3, "mps") == ("processes", "3 processes share a device")
    monkeypatch.setattr(system, "starts_workers", lambda: False)
    assert chosen(3)[0] == "inline"
