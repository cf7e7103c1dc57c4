"""The bytes in the pipes of the processes engine are those the parts declared, plus the client's state, which the driver
stores in a simulation."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from undrift.bench import costs
from undrift.bench.measure import NoEvaluation
from undrift.engine import processes
from undrift.engine.arena import pack, unpack
from undrift.engine.spawn import start_workers
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.methods.naming import method
from undrift.store.run_store import RunStore

FRAME = 1500  # bytes of pickle around the values of one client


@pytest.fixture(scope="module")
def workers():
    workers = start_workers(1)
    yield workers
    processes.stop_workers(workers)


class ByteCounter:
    """An arena (or its reading side) that counts the bytes that pass through it."""

    def __init__(self, inner):
        self.inner, self.bytes = inner, 0

    def place(self, tensor):
        self.bytes += tensor.numel() * tensor.element_size()
        return self.inner.place(tensor)

    def tensor(self, reference):
        tensor = self.inner.tensor(reference)
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor


def sent(text, workers, monkeypatch):
    """(down, up): bytes per client of the third round."""
    counted = defaultdict(list)

    def packed(content, arena):
        counter = ByteCounter(arena)
        data = pack(content, counter)
        counted["down"].append(len(data) + counter.bytes)
        return data

    def unpacked(data, blocks):
        counter = ByteCounter(blocks)
        content = unpack(data, counter)
        if content[0] == "done":
            counted["up"].append(len(data) + counter.bytes)
        return content

    # One by one: the clients of a stack share a message.
    options = {"method": method(text), "model": costs.network, "rounds": 3, "epochs": 2, "batch": 10, "lr": 0.01,
               "cohort": 1.0, "out": False, "lockstep": "off"}  # fmt: skip
    setup, store = prepare(from_keywords(options), costs.federation()), RunStore(None)
    engine = processes.Processes(workers, keep_alive=True).open(setup.runtime, store.states)
    loop = setup.loop(engine, store)
    loop.evaluator = NoEvaluation()
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(processes, "pack", packed)
        patch.setattr(processes, "unpack", unpacked)
        server_state = loop.begin()
        for _ in range(3):
            counted.clear()
            server_state = loop.one_round(server_state).state
    store.close()
    return [sum(counted[way]) / costs.CLIENTS for way in ("down", "up")]


@pytest.mark.parametrize("text", ["flood", "bound", "scaffold", "fednp", "fedfomo", "fliu", "fedper", "feddyn+flood"])
def test_the_pipes_carry_what_was_declared(text, workers, monkeypatch):
    plain, found = sent("fedavg", workers, monkeypatch), sent(text, workers, monkeypatch)
    counted = costs.count(text)
    down, up = (mine - fedavg for mine, fedavg in zip(found, plain))
    assert 0 <= down - counted.declared_down - counted.state <= FRAME
    assert 0 <= up - counted.declared_up - counted.state <= FRAME
