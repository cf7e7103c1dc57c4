"""Lock-step: what a stack of clients computes, whoever is in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from undrift.contract.parts import Objective, Personalize, add_scaled, stack_scaled
from undrift.core.errors import RunFailed
from undrift.core.vector import Flat
from undrift.engine.pool import dealt
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.methods.naming import method
from undrift.round.client import serve
from undrift.round.lockstep import decide, linear, network
from undrift.round.lockstep.batches import Batches
from undrift.round.lockstep.serve import groups, serve_all
from undrift.round.lockstep.stack import Stack
from undrift.round.orders import Order
from undrift.testing import QUICK, run_parts, tiny
from undrift.testing.stacks import in_stacks

OWN = {"model": None, "loss": None, "momentum": 0.9, "weight_decay": 1e-3}


def residual(width: int = 17) -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(5, width), nn.Linear(width, width), nn.Linear(width, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.tanh(self.first(x))
            return self.last(h + torch.relu(self.inner(h)))

    return Residual()


NETWORKS = {
    "dense": lambda: nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, 3)),
    "no bias": lambda: nn.Sequential(nn.Linear(5, 17, bias=False), nn.ReLU(), nn.Linear(17, 3)),
    "curved": lambda: nn.Sequential(nn.Linear(5, 17), nn.GELU(), nn.Linear(17, 3), nn.Tanh()),
    "norms": lambda: nn.Sequential(
        nn.Linear(5, 12), nn.LayerNorm(12), nn.SiLU(), nn.GroupNorm(3, 12), nn.Linear(12, 3)
    ),
    "batch norm": lambda: nn.Sequential(nn.Linear(5, 17), nn.BatchNorm1d(17), nn.ReLU(), nn.Linear(17, 3)),
    "batch norms, curved": lambda: nn.Sequential(
        nn.BatchNorm1d(5, affine=False), nn.Linear(5, 17), nn.BatchNorm1d(17, momentum=0.3), nn.Tanh(), nn.Linear(17, 3)
    ),
    "own module": residual,
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 5)),
        nn.Conv1d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    ),
}
MAPPED = ("own module", "convolutions")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [9, 16])
def test_a_clients_bits_do_not_depend_on_its_stack(name, batch):
    federation = tiny(clients=9, sizes=[40, 3, 17, 9, 30, 1, 26, 18, 8])
    own = {**OWN, "model": NETWORKS[name], "batch": batch, "rounds": 2}
    found = [in_stacks(clients, "fedavg", federation, **own) for clients in (1, 2, 7, 50)]
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    assert found[0].setup.plan.lockstep_why.endswith("vmap" if name in MAPPED else "batched products")
    alone = run_parts("fedavg", federation, **own)
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["scaffold", "flood", "fedlc", "fliu", "apfl"])
def test_a_network_through_vmap_has_one_result_for_every_stack(name):
    """Four clients at a time, however many there are: kernels of convolutions round by the number of clients."""
    federation = tiny(clients=9, sizes=[40, 3, 17, 9, 30, 1, 26, 18, 8])
    federation.x[federation.rows(3)[2]] = torch.inf  # of one client: its neighbours do not see it
    own = {**OWN, "model": NETWORKS["convolutions"], "batch": 9, "rounds": 2}
    found = [in_stacks(clients, name, federation, **own) for clients in (1, 2, 7, 50)]
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    assert torch.allclose(found[0].vector, run_parts(name, federation, **own).vector, rtol=1e-4, atol=1e-5)


def test_rows_are_filled_up_until_every_client_is_aligned_alike():
    for widths, batch in (((20, 17, 3), 9), ((784, 10), 10), ((64, 100, 10), 32)):
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
        flat = Flat(nn.Sequential(*layers), torch.zeros(2, widths[0]))
        rows = network.aligned_rows(flat, torch.zeros(2, widths[0]), batch)
        assert rows >= batch
        assert all(rows * width % linear.ALIGN == 0 for width in widths)
    assert rows == 32  # nothing is filled up where nothing has to be


ADAM = {"optimizer": "adam", "lr": 0.01}


@pytest.mark.parametrize(
    "more",
    [
        {"clip": 0.05}, {"persist_momentum": True}, {"weight_decay": 0.1, "momentum": 0.0}, ADAM, {**ADAM, "clip": 0.05},
        {**ADAM, "weight_decay": 0.1}, {**ADAM, "persist_momentum": True},
    ],
)  # fmt: skip
def test_clip_decay_and_optimizers_are_those_of_one_by_one(more):
    federation = tiny(clients=5, sizes=[40, 3, 17, 9, 30])
    own = {**OWN, "model": NETWORKS["dense"], **more}
    found = [in_stacks(clients, "fedavg", federation, **own).vector for clients in (1, 50)]
    assert torch.equal(*found)
    assert torch.allclose(found[0], run_parts("fedavg", federation, **own).vector, rtol=1e-4, atol=1e-5)


def test_a_client_whose_data_are_not_finite_fails_alone():
    federation = tiny(clients=4, sizes=[20, 30, 25, 9])
    federation.x[torch.from_numpy(federation.rows(1))] = torch.nan
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 2}
    found = [in_stacks(clients, "fedprox", federation, **own) for clients in (1, 50)]
    assert torch.equal(found[0].vector, found[1].vector)
    assert [event[1:3] for event in found[1].events] == [(1, "nonfinite")] * 2
    assert [event[1:3] for event in run_parts("fedprox", federation, **own).events] == [(1, "nonfinite")] * 2


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "flood"])
@pytest.mark.parametrize("more", [{"clip": 0.05}, {}, {**ADAM, "clip": 0.05}])
def test_a_batch_that_is_not_finite_is_left_out_as_one_by_one(name, more):
    """The other batches of that client count, whoever is beside it, with and without a clip."""
    federation = tiny(clients=3, sizes=[40, 30, 25])
    federation.x[federation.rows(0)[3]] = torch.inf
    own = {**OWN, "model": NETWORKS["dense"], "batch": 8, "rounds": 2, "tolerate": True, **more}
    found = [in_stacks(clients, name, federation, **own) for clients in (1, 2, 50)]
    alone = run_parts(name, federation, **own, lockstep="off")
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)
    assert all(outcome.events == alone.events for outcome in found)


@pytest.mark.parametrize("name", ["fedavg", "fliu", "fedprox"])
@pytest.mark.parametrize("outputs", [5, 40])
def test_a_network_may_have_more_outputs_than_classes(name, outputs):
    own = {**OWN, "model": lambda: nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, outputs)), "rounds": 1}
    found = [in_stacks(clients, name, tiny(clients=3), **own) for clients in (1, 50)]
    assert found[0].setup.plan.lockstep
    assert torch.equal(*(outcome.vector for outcome in found))
    alone = run_parts(name, tiny(clients=3), **own, lockstep="off")
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)


class Modes(nn.Module):
    """Computes in training otherwise than in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.first(x))
        return self.last(3 * h if self.training else h)


@pytest.mark.parametrize("name", ["fedavg", "fedntd", "ditto", "fliu"])
def test_a_pass_between_two_steps_leaves_the_network_in_training(name):
    federation = tiny(clients=4, sizes=[40, 30, 20, 25])
    own = {**OWN, "model": Modes, "rounds": 2}
    found = [in_stacks(clients, name, federation, **own) for clients in (1, 2, 50)]
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    alone = run_parts(name, federation, **own, lockstep="off")
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)


def words(bad: int) -> Federation:
    """Three clients with texts of four words out of ten. One word of client 1 is `bad`."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randint(10, (60, 4), generator=draws), torch.arange(60) % 3
    x[25, 2] = bad
    tests = x[:9].clamp(0, 9), y[:9]
    return Federation("words", (x, y), tests, np.split(np.arange(60), 3), list("abc"), [np.arange(9)] * 3)


EMBEDDED = lambda: nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(32, 3))  # noqa: E731


@pytest.mark.parametrize("name", ["fedavg", "sampling.subset(which=high)", "flood"])
@pytest.mark.parametrize("bad", [-1, 3, 10])
def test_a_client_whose_words_are_out_of_range_fails_alone(name, bad):
    """Also where its pass over the data fails before the first step. -1 is not the last word."""
    own = {**OWN, "model": EMBEDDED, "rounds": 1, "tolerate": True, "evaluate_every": 100}
    found = [in_stacks(clients, name, words(bad), **own) for clients in (1, 50)]
    alone = run_parts(name, words(bad), **own, lockstep="off")
    assert torch.equal(*(outcome.vector for outcome in found))
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)
    left_out = [] if bad == 3 else [(1, "exception")]
    assert all([event[1:3] for event in outcome.events] == left_out for outcome in (*found, alone))


@dataclass(frozen=True)
class InPlace(Objective):
    """Changes its state in place. Client 2 raises in round 1, after that."""

    lockstep: ClassVar = True

    def init_client(self, job):
        return {"sum": torch.zeros(job.plan.layout.nP)}

    def before_training(self, job, state, server_message):
        return state

    def gradient(self, P, G, batch, job, scratch):
        scratch["sum"].add_(G, alpha=0.1)
        G.add_(scratch["sum"])
        if (job.client, job.round) == (2, 1):
            raise ValueError("mine")

    def after_training(self, job, scratch, state):
        return scratch, {}


def test_who_raises_changes_no_state_of_the_others_in_the_stack():
    federation = tiny(clients=4, sizes=[20, 30, 25, 9])
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 3, "tolerate": True, "selection": "all", "cohort": None}
    found = [in_stacks(clients, InPlace(), federation, **own) for clients in (1, 2, 50)]
    alone = run_parts(InPlace(), federation, **own, lockstep="off")
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_may_be_small_numbers(dtype):
    federation = tiny(clients=3)
    federation.y = federation.y.to(dtype)
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 1}
    for name in ("fedavg", "fedprox"):
        found = run_parts(name, federation, **own, lockstep="on").vector
        assert torch.equal(found, run_parts(name, tiny(clients=3), **own, lockstep="on").vector)


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_stack_of_sixty(name):
    """Of unequal sizes, so that the front becomes shorter many times."""
    federation = tiny(clients=60, sizes=[1 + 7 * client % 50 for client in range(60)])
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 2, "selection": "all", "cohort": None}
    found = [in_stacks(clients, name, federation, **own) for clients in (1, 2, 7, 50, 60)]
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    alone = run_parts(name, federation, **own, lockstep="off")
    assert torch.allclose(found[0].vector, alone.vector, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("more", [{}, {"persist_momentum": True}, {"momentum": 0.0}, ADAM])
@pytest.mark.parametrize("broken", [False, True])
def test_steps_without_a_look_at_losses_have_the_bits_of_steps_with_one(monkeypatch, broken, more):
    """Where a loss turns out not to be finite, all steps are taken again with a look at each."""
    federation = tiny(clients=5, sizes=[40, 30, 33, 9, 1])
    if broken:
        federation.x[torch.from_numpy(federation.rows(1))] = torch.nan
        federation.x[federation.rows(2)[4]] = torch.inf
    own = {**OWN, "model": NETWORKS["dense"], "batch": 8, "epochs": 3, "rounds": 3, **more}
    taken, plain = [], Stack.plain
    monkeypatch.setattr(Stack, "plain", lambda self: taken.append(plain(self)) or taken[-1])
    found = [in_stacks(50, "fedavg", federation, **own)]
    assert any(taken) is not broken
    monkeypatch.setattr(Stack, "plain", lambda self: False)
    found.append(in_stacks(50, "fedavg", federation, **own))
    assert torch.equal(found[0].vector, found[1].vector)
    notes = [list(one.store.record.all("SELECT * FROM notes")) for one in found]
    assert notes[0] == notes[1]


def of_width(features: int, sizes: list[int]) -> Federation:
    torch.manual_seed(0)
    x, y = torch.randn(sum(sizes), features), torch.arange(sum(sizes)) % 3
    shards = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return Federation("made up", (x, y), (x[:9], y[:9]), shards, list("abc"), [np.arange(9)] * len(sizes))


@pytest.mark.parametrize("features", [32, 4096])
@pytest.mark.parametrize("broken", [False, True])
def test_what_fills_a_batch_up_may_be_the_next_clients_samples(monkeypatch, features, broken):
    """Ten rows of so many features are aligned, those of the logits are filled up to 32. What is not finite at a neighbour
    does not count there."""
    federation = of_width(features, [40, 25, 33, 9, 1])
    if broken:
        federation.x[federation.rows(2)[4]] = torch.nan
    own = {**OWN, "model": lambda: nn.Sequential(nn.Linear(features, 3)), "batch": 10, "rounds": 2, "lr": 0.01}
    without, rows = [], Batches.windows
    monkeypatch.setattr(
        Batches, "windows", lambda self, *given: without.append(given[1] < self.rows) or rows(self, *given)
    )
    found = [in_stacks(clients, "fedavg", federation, **own) for clients in (1, 2, 50)]
    assert without
    assert all(without)
    monkeypatch.setattr(Batches, "read_ahead", lambda self: self.samples)
    found.append(in_stacks(50, "fedavg", federation, **own))
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    assert torch.isfinite(found[0].vector).all()


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedrep"])
def test_adam_counts_only_the_steps_that_a_client_takes(name):
    """A batch that is not finite is no step: the correction for few steps goes on where it was."""
    federation = tiny(clients=5, sizes=[40, 30, 33, 9, 1])
    federation.x[federation.rows(2)[4]] = torch.inf
    own = {**OWN, **ADAM, "model": NETWORKS["dense"], "batch": 8, "rounds": 2}
    found = [in_stacks(clients, name, federation, **own).vector for clients in (1, 2, 50)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert torch.allclose(found[0], run_parts(name, federation, **own).vector, rtol=1e-4, atol=1e-5)


def test_a_slow_client_makes_as_many_steps_as_its_budget_allows():
    federation = tiny(clients=3, sizes=[40, 40, 40])
    own = {"model": NETWORKS["dense"], "loss": None, "method": method("fedavg")}
    for lockstep in ("on", "off"):
        runtime = prepare(from_keywords({**QUICK, **own, "lockstep": lockstep}), federation).runtime
        order = Order("train", 0, 1, runtime.initial, {}, budget=4)
        assert serve(runtime, order).steps == 4
        assert serve(runtime, Order("train", 0, 1, runtime.initial, {})).steps == 6


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11])
def test_batch_norm_learns_from_a_clients_own_samples(size):
    """Batches of five: the last sample of eleven is a batch of its own, from which nothing can be learnt."""
    federation = tiny(clients=2, sizes=[size, 30])
    own = {"model": NETWORKS["batch norm"], "loss": None, "method": method("fedavg"), "batch": 5, "epochs": 1}
    replies = {}
    for lockstep in ("on", "off"):
        runtime = prepare(from_keywords({**QUICK, **own, "lockstep": lockstep}), federation).runtime
        order = Order("train", 0, 0, runtime.initial, runtime.model.integers(), size=size)
        other = Order("train", 0, 1, runtime.initial, runtime.model.integers(), size=30)
        replies[lockstep] = serve_all([(runtime, other), (runtime, order)])[1]
    on, off = replies["on"], replies["off"]
    batches = {1: 0, 2: 1, 9: 2, 10: 2, 11: 2}[size]
    assert [int(count) for count in on.integers.values()] == [batches]
    assert [int(count) for count in off.integers.values()] == [batches]
    assert on.steps == off.steps == max(1, batches)
    assert torch.allclose(on.vector, off.vector, rtol=1e-4, atol=1e-5)
    statistics = slice(runtime.plan.layout.nP, None)
    assert torch.equal(on.vector[statistics], runtime.initial[statistics]) is (size == 1)


@dataclass(frozen=True)
class Breaks(Objective):
    lockstep: ClassVar = True

    def gradient(self, P, G, batch, job, scratch) -> None:
        if job.client == 2:
            raise ValueError("client two is broken")


def test_a_hook_that_raises_fails_its_own_client():
    federation = tiny(clients=4, sizes=[20, 30, 25, 9])
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 1}
    with pytest.raises(RunFailed, match="client two is broken"):
        in_stacks(50, Breaks(), federation, **own)
    found = in_stacks(50, Breaks(), federation, **own, tolerate=True)
    assert [event[1:3] for event in found.events] == [(2, "exception")]
    assert torch.equal(found.vector, in_stacks(1, Breaks(), federation, **own, tolerate=True).vector)


@dataclass(frozen=True)
class Borrows(Personalize):
    """Holds a network of the worker's through its training, as a part may."""

    def before_start(self, job, state, server_message):
        return job.replica(job.received * (1 + job.client))

    def after_training(self, job, replica, state):
        job.note("held", replica.flat.vector.sum())
        return state, {}


def test_a_part_that_holds_a_network_keeps_it_for_its_own_client():
    federation = tiny(clients=4, sizes=[20, 30, 25, 9])
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 2}
    found = [in_stacks(clients, Borrows(), federation, **own) for clients in (1, 50)]
    assert found[0].notes("held") == found[1].notes("held")
    assert len({value for _, _, value in found[1].notes("held")}) == 8


def test_a_stack_is_cut_by_bytes():
    federation = tiny(clients=3, sizes=[40, 40, 40])
    wide = lambda: nn.Sequential(nn.Linear(5, 19777), nn.ReLU(), nn.Linear(19777, 3))  # noqa: E731
    own = {**OWN, "model": wide, "rounds": 1, "lockstep": "on(bytes=50000000)"}
    runtime = run_parts("fedavg", federation, **own, selection="list([0])", cohort=None).setup.runtime
    assert runtime.plan.layout.nP == 177_996
    orders = [Order("train", 0, client, runtime.initial, {}, size=60) for client in range(1000)]
    found = groups([(runtime, order) for order in orders])
    each = runtime.lockstep.bytes_of(60, 60)
    assert sorted(position for group in found for position in group) == list(range(1000))
    assert all(len(group) * each <= 50_000_000 for group in found)
    assert max(map(len, found)) == 50_000_000 // each > 1


def test_everything_that_is_laid_out_by_steps_is_as_long_as_the_largest_client():
    """A client with very many samples gets few others beside it: they would be laid out over all of its steps."""
    own = {**OWN, "model": NETWORKS["dense"], "rounds": 1, "lockstep": "on(bytes=50000000)"}
    runtime = run_parts("fedavg", tiny(clients=3), **own).setup.runtime
    sizes = [20_000, *[5] * 2_000]
    orders = [Order("train", 0, client, runtime.initial, {}, size=size) for client, size in enumerate(sizes)]
    for group in groups([(runtime, order) for order in orders]):
        longest = max(sizes[position] for position in group)
        laid_out = len(group) * -(-longest // runtime.plan.batch) * runtime.plan.epochs * runtime.lockstep.of_step
        assert len(group) == 1 or laid_out <= 50_000_000
    assert (
        runtime.lockstep.bytes_of(5, 5)
        < runtime.lockstep.bytes_of(5, 20_000)
        < runtime.lockstep.bytes_of(20_000, 20_000)
    )


def test_chunks_for_workers_take_equally_long():
    def costs(sizes):
        orders = [Order("train", 0, client, torch.zeros(1), {}, size=size) for client, size in enumerate(sizes)]
        chunks = [[orders[position].size for position in chunk] for chunk in dealt(orders, 2)]
        return chunks, [sum(chunk) + 5 * max(chunk) for chunk in chunks]

    # A stack is stepped as long as its largest client trains, so a very large one has few beside it.
    assert costs([30, 20, 15, 12, 10, 8]) == ([[30], [20, 15, 12, 10, 8]], [180, 165])
    assert costs([10, 10, 10, 10]) == ([[10, 10], [10, 10]], [70, 70])
    orders = [Order("train", 0, client, torch.zeros(1), {}, size=client) for client in range(100)]
    chunks = dealt(orders, 2)
    assert [len(chunk) for chunk in chunks] == [50, 50]
    sizes = [sum(orders[position].size for position in chunk) for chunk in chunks]
    assert abs(sizes[0] - sizes[1]) <= 50
    assert [len(chunk) for chunk in dealt(orders[:3], 8)] == [1, 1, 1]
    assert max(map(len, dealt(orders * 10, 3))) <= 64
    assert max(map(len, dealt(orders * 10, 3, most=7))) <= 7


def test_what_is_decided_does_not_depend_on_the_data():
    assert torch.equal(decide.sample_of(torch.zeros(2, 7)), decide.sample_of(torch.ones(2, 7)))


@dataclass(frozen=True)
class Pull(Objective):
    """Pulls towards a point of the client's own, in `gradient` or after the clip. `at_once`: for all clients in one call."""

    at_once: bool = True
    late: bool = False
    lockstep: ClassVar = True

    def before_training(self, job, state, server_message):
        return {"strength": 0.1 + job.client, "to": job.plan.layout.trainable(job.received) * (1 + job.client)}

    def gradient(self, P, G, batch, job, scratch):
        assert P.shape == G.shape
        assert (job is None) == (batch is None) == (P.dim() == 2)
        if not self.late:
            add_scaled(G, P - scratch["to"], scratch["strength"])

    def after_clip(self, P, G, batch, job, scratch):
        if self.late:
            add_scaled(G, P - scratch["to"], scratch["strength"])

    def stack_scratches(self, scratches):
        if not self.at_once:
            return None
        strength, to = stack_scaled([(scratch["strength"], scratch["to"]) for scratch in scratches])
        return {"strength": strength, "to": to}


@dataclass(frozen=True)
class Halve(Objective):
    """Between two parts: it halves what the first one left."""

    lockstep: ClassVar = True

    def gradient(self, P, G, batch, job, scratch):
        assert batch.logits.size(0) == len(batch.y)
        G.mul_(0.5)


@pytest.mark.parametrize("parts", [(Pull(),), (Pull(late=True),), (Pull(), Halve()), (Halve(), Pull(), "fedper")])
@pytest.mark.parametrize("network", ["dense", "norms"])
@pytest.mark.parametrize("more", [{}, {"clip": 0.5}])
def test_hooks_that_are_called_once_for_all_do_what_they_do_in_turn(parts, network, more):
    """In the order of the parts, with other parts between them, and without a touch of what stays private."""
    federation = tiny(clients=5, sizes=[40, 3, 17, 9, 30])
    own = {**OWN, "model": NETWORKS[network], "rounds": 2, "lr": 0.02, "selection": "all", "cohort": None, **more}
    found = [in_stacks(clients, method(*parts), federation, **own) for clients in (1, 2, 50)]
    assert all(torch.equal(found[0].vector, other.vector) for other in found[1:])
    in_turn = method(*(replace(part, at_once=False) if isinstance(part, Pull) else part for part in parts))
    for other in (in_stacks(50, in_turn, federation, **own), run_parts(in_turn, federation, **own, lockstep="off")):
        assert torch.allclose(found[0].vector, other.vector, rtol=1e-4, atol=1e-5)
