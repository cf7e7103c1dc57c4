"""Memory between driver and workers: large tensors that nobody reads any more go back to the system."""

from __future__ import annotations

import sys

import pytest
import torch

import undrift as ud
from undrift.engine import processes
from undrift.engine.arena import KEPT, Arena, MappedBlocks, pack, unpack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
MB = 1 << 20


def vector(fill: float) -> torch.Tensor:
    return torch.full((MB,), fill)  # 4 MB


def test_an_exchange_that_is_over_holds_no_memory_but_a_few_pages_to_write_again():
    """Law: with an odd number of exchanges per round, both halves hold vectors in turn, but never at the same time."""
    arena, held = Arena(), []
    for _ in range(4):
        arena.turn()
        for client in range(5):
            arena.place(vector(float(client)))
        held.append(arena.allocated())
        for _ in range(2):  # two small exchanges: stage G on two sets
            arena.turn()
            arena.place(torch.ones(1000))
    assert max(held) <= 5 * 4 * MB + KEPT + 3 * 4096


def test_a_released_tensor_is_gone_and_its_neighbours_stay():
    arena, blocks = Arena(), MappedBlocks()
    tensors = [vector(1.0), vector(2.0), vector(3.0)]
    first, second, third = unpack(pack(tensors, arena), blocks)
    before = arena.allocated()
    blocks.release([second])
    assert before - arena.allocated() >= 4 * MB - 2 * 4096
    assert torch.equal(first, tensors[0])
    assert torch.equal(third, tensors[2])
    arena.release(arena.place(tensors[0]))
    assert torch.equal(third, tensors[2])
    assert arena.allocated() <= 4 * MB + 4 * 4096


@pytest.mark.parametrize(
    "options", [{}, {"evaluate_clients": 3}]
)  # the second keeps the trained vector as a state, too
def test_states_on_their_way_do_not_pile_up(tmp_path, monkeypatch, options):
    """Law: the driver's arena has the model, the message to all, and one state per order under way, not one per client."""
    held, send = list[int](), processes.Processes.send

    def watched(self, worker, orders, positions):
        send(self, worker, orders, positions)
        held.append(self._arena.allocated())

    monkeypatch.setattr(processes.Processes, "send", watched)
    settings = {
        "clients": 12,
        "cohort": 12,
        "rounds": 3,
        "epochs": 1,
        "model": "mlp(4000)",
        "partition": "iid",
        **options,
    }
    with_processes = ud.run("scaffold", engine="processes", workers=1, out=tmp_path / "p", **settings)
    inline = ud.run("scaffold", engine="inline", out=tmp_path / "i", **settings)
    assert torch.equal(with_processes.vector, inline.vector)
    one = 4 * with_processes.vector.numel()
    kinds = 2 if options else 1
    assert max(held) <= (2 + 8 * kinds) * one  # chunks: a quarter of what is left; two chunks may be under way


def test_vectors_of_a_round_that_is_aggregated_are_gone(monkeypatch):
    """Law: the replies of two rounds are never held at the same time. Pages that went back read as zeros."""
    sums, aggregated = list[tuple[float, float]](), processes.Processes.aggregated

    def watched(self, replies):
        before = [float(reply.vector.abs().sum()) for reply in replies]
        aggregated(self, replies)
        sums.extend(zip(before, (float(reply.vector[1024:-1024].abs().sum()) for reply in replies), strict=True))

    monkeypatch.setattr(processes.Processes, "aggregated", watched)
    options = {"data": "digits", "clients": 4, "cohort": 4, "epochs": 1, "model": "mlp(700,700)", "workers": 2}
    ud.run("fedavg", rounds=2, engine="processes", out=False, **options)
    assert len(sums) == 8
    assert all(before > 0 and after == 0 for before, after in sums)
