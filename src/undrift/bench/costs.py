"""The costs of a method, counted on a tiny federation: passes over the data, training, bytes, memory.

There are five clients of twenty random samples, a network with BatchNorm (with an adapter, if the method needs one), two
epochs and three rounds. The last round is
counted: then every schedule that defaults to a fraction of the run is on. Passes are samples over samples, so a pass
over a fifth of the data is 0.2 passes. Passes once a round and passes in every local epoch are counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift.bench.measure import NoEvaluation
from undrift.contract.context import Tree
from undrift.contract.declare import size_in_bytes
from undrift.core.determinism import deterministic
from undrift.core.errors import BadRequest
from undrift.core.streams import key
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.methods.naming import method
from undrift.round.client import ClientRound
from undrift.round.orders import Order, Reply
from undrift.store.run_store import RunStore
from undrift.testing import LowRank, needs_adapters

CLIENTS, SAMPLES, EPOCHS = 5, 20, 2
INPUTS, CLASSES = 64, 10
NETWORK = "64-100-10 with BatchNorm"


@dataclass(frozen=True)
class Costs:
    """Per client and round. Bytes are those of float32 numbers on the network above."""

    passes: float  # over the client's data once a round, beyond training
    passes_per_epoch: float  # the same in every local epoch
    training: float  # samples trained on, relative to FedAvg; 2 with a second model
    model: int  # bytes of the model as it is sent, without private entries
    up: int  # bytes that a client sends beside the model
    down: int  # bytes that a client receives beside the model
    declared_up: int  # the same, as declared by the parts
    declared_down: int
    state: int  # bytes that a client keeps between rounds
    shelf: int  # bytes that the server keeps per client
    rebuilt: bool | None  # whether a client sends exactly the model it holds; None: there is no personal model


class Counting(Inline):
    """The inline engine, which keeps the last round's orders and replies to count them."""

    last: list[tuple[Order, Reply, int, bool]]

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        self.last = []
        for position, order in enumerate(orders):
            client = ClientRound(self.runtime, self.with_state(order))
            with deterministic(key(self.runtime.plan.seed, "local", order.round, order.client)):
                reply = client.train()
                held = client.mixture(client.trained)
            assert reply.vector is not None
            known = len(held) == 1 and held[0][0] == 1 and torch.equal(held[0][1], reply.vector)
            self.last.append((order, reply, size(reply.state), known))
            yield position, reply


@cache
def count(what: Any) -> Costs:
    """The costs of a part, a method, or a text that names one."""
    options = {
        "method": method(what),
        "rounds": 3,
        "epochs": EPOCHS,
        "batch": SAMPLES // 2,
        "lr": 0.01,
        "cohort": 1.0,
        "out": False,
        "device": "cpu",
        "lockstep": "off",  # it saves passes; the method's own are counted
    }
    first, second = (adapted, merged) if needs_adapters(what) else (network, network_without_statistics)
    try:
        setup = prepare(from_keywords({**options, "model": first}), federation())
    except BadRequest:  # a part that takes no BatchNorm, or merges adapters
        setup = prepare(from_keywords({**options, "model": second}), federation())
    store = RunStore(None)
    engine = Counting(setup.runtime, store.states)
    loop = setup.loop(engine, store, evaluator=NoEvaluation())
    server_state = loop.run(loop.begin())
    shelves = [
        store.states.get(*row, server_state.versions[row])
        for row in server_state.versions
        if row[0].startswith("shelf/")
    ]
    store.close()
    plan, data = setup.plan, CLIENTS * SAMPLES
    orders, replies, states, known = zip(*engine.last)
    personal = setup.method.one("personalize") is not None or plan.private is not None
    private = 0 if plan.private is None else int(plan.private.sum())
    in_epochs = sum(reply.samples_scored_in_epochs for reply in replies)
    return Costs(
        passes=(sum(reply.samples_scored for reply in replies) - in_epochs) / data,
        passes_per_epoch=in_epochs / (EPOCHS * data),
        training=sum(reply.samples_trained for reply in replies) / (EPOCHS * data),
        model=4 * (plan.layout.n - private),
        up=mean(size(reply.client_messages) for reply in replies),
        down=mean(size(order.server_messages) for order in orders),
        declared_up=sum(size_in_bytes(part.uplink, plan) for part in setup.method.parts),
        declared_down=sum(size_in_bytes(part.downlink, plan) for part in setup.method.parts),
        state=mean(states),
        shelf=mean(map(size, shelves)),
        rebuilt=all(known) if personal else None,
    )


def mean(values: Iterable[int]) -> int:
    return round(sum(values) / CLIENTS)


def size(tree: Tree) -> int:
    """Bytes of a tree: a tensor as it is, a number as one float32, a client id (an int key) as one more."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(size(value) + 4 * isinstance(name, int) for name, value in tree.items())
    if isinstance(tree, list):
        return sum(map(size, tree))
    return 0 if tree is None else 4


def network_without_statistics() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 100), nn.GroupNorm(10, 100), nn.ReLU(), nn.Linear(100, CLASSES))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, CLASSES))


def adapted(merge: bool = False) -> nn.Module:
    """The same with an adapter of rank 4 on its first layer."""
    first, *others = network().children()
    assert isinstance(first, nn.Linear)
    return nn.Sequential(LowRank(first, 4, merged=merge), *others)


def merged() -> nn.Module:
    return adapted(merge=True)


def model_bytes() -> int:
    """Bytes of the whole network: parameters and BatchNorm statistics."""
    return sum(4 * value.numel() for value in network().state_dict().values() if value.is_floating_point())


def federation() -> Federation:
    """Random samples, skewed labels, equal sizes, a proxy set."""
    draw = np.random.default_rng(0)
    total = (CLIENTS + 2) * SAMPLES  # the last two shards: proxy and test
    x = torch.from_numpy(draw.standard_normal((total, INPUTS), dtype=np.float32))
    y = torch.arange(total) // 7 % CLASSES
    shards = np.split(np.arange(total), CLIENTS + 2)
    test = shards[-1]
    slices = [np.arange(SAMPLES)] * CLIENTS
    return Federation(
        "tiny", (x, y), (x[test], y[test]), shards[:CLIENTS], [str(c) for c in range(CLASSES)], slices, proxy=shards[-2]
    )
