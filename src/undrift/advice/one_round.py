"""One round of plain averaging on a part of the federation: how far clients drift, and how well their gradients agree.

Both depend on the network, the rate and the sizes of clients. So the same samples are also dealt at random to clients of the
same sizes, and trained again: what is more than there comes from the differences between the clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.advice.drawn import Drawn, drawn
from undrift.core.determinism import one_thread
from undrift.core.streams import numpy_stream
from undrift.evaluate.diagnose.base import gradient
from undrift.experiment.options import FIELDS, Options, from_keywords
from undrift.experiment.result import Result
from undrift.experiment.runner import run_options
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation

CLIENTS, SAMPLES = 20, 256 * 20  # at most, that are trained
OPERATIONS = 4e10  # at most, in both rounds together
# What a run's options say about local training. The rest is about federation, method and evaluation.
TRAINING = (
    "model", "adapt", "epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip", "augment", "task", "loss", "init",
    "seed", "device", "lockstep",
)  # fmt: skip


@dataclass(frozen=True)
class OneRound:
    drift: float  # √(Σ p_k ‖u_k − ū‖²) / ‖ū‖ of the clients' updates u_k
    alignment: float  # mean cosine of two clients' gradients at the model after the round
    seconds: float
    samples: int
    parameters: int


def local_training(options: Mapping[str, Any]) -> Options:
    given = {name: options[name] for name in TRAINING if name in options and name in FIELDS}
    fixed = {
        "selection": "all",
        "rounds": 1,
        "diagnose": "drift",
        "engine": "inline",
        "out": False,
        "evaluate_on": "own",
    }
    return from_keywords({**given, **fixed})


def one_round(options: Mapping[str, Any], federation: Federation) -> tuple[OneRound, OneRound]:
    """(the round on these clients, the round on the same samples dealt at random)."""
    asked = local_training(options)
    some = drawn(federation, CLIENTS, SAMPLES)
    per_sample = operations(asked, as_federation(some, federation))
    most = int(OPERATIONS / (6 * asked.epochs * per_sample))  # a step is three forward passes; two rounds
    some = drawn(federation, CLIENTS, min(SAMPLES, max(most, 8 * len(some.clients))))
    order = torch.from_numpy(numpy_stream(federation.seed, "advice", 1).permutation(len(some)))
    mixed = Drawn(some.x[order], some.y[order], some.client, some.clients, some.whole)
    first, second = (measured(asked, as_federation(one, federation)) for one in (some, mixed))
    return first, second


def as_federation(some: Drawn, of: Federation) -> Federation:
    """The drawn samples as a federation. Its test set is a handful of training samples: no test data are needed."""
    shards = [np.flatnonzero(some.client == client) for client in some.clients]
    few = some.x[: min(8, len(some))], some.y[: min(8, len(some))]
    slices = [np.arange(1)] * len(shards)
    return Federation(of.name, (some.x, some.y), few, shards, of.labels, slices, of.seed, scale=of.scale, task=of.task)


def operations(asked: Options, federation: Federation) -> float:
    """Floating-point operations of one sample's forward pass. What the counter does not know (recurrent layers) is taken to
    use every parameter once per prediction."""
    from torch.utils.flop_counter import FlopCounterMode

    setup = prepare(asked, federation)
    x = setup.runtime.network_input(federation.x[:2]).to(setup.runtime.model.device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = setup.runtime.model(x)
    predictions = math.prod(output.shape[1:-1]) if output.dim() == 3 else 1
    return max(counter.get_total_flops() / 2, 2.0 * setup.plan.layout.n * predictions)


def measured(asked: Options, federation: Federation) -> OneRound:
    result = run_options(asked, federation)
    seconds = result.rows("SELECT seconds FROM rounds")[0][0]
    return OneRound(
        relative_drift(result, federation),
        mean_cosine(result, federation),
        float(seconds),
        federation.total,
        result.setup.plan.layout.n,
    )


def relative_drift(result: Result, federation: Federation) -> float:
    """From each update's length and its cosine to the mean ū: ‖ū‖ = Σ p_k ‖u_k‖ cos_k."""
    found = {
        metric: dict(
            result.rows("SELECT client, value FROM metrics WHERE metric = ? AND client IS NOT NULL", (metric,))
        )
        for metric in ("drift", "drift_cosine")
    }
    clients = sorted(found["drift"])
    sizes = federation.sizes[clients]
    p = sizes / sizes.sum()
    length = np.array([found["drift"][client] for client in clients])
    mean = float(p @ (length * np.array([found["drift_cosine"][client] for client in clients])))
    return math.sqrt(max(0.0, float(p @ length**2) - mean**2)) / mean if mean > 0 else 0.0


def mean_cosine(result: Result, federation: Federation) -> float:
    """The mean cosine of two clients' gradients: (‖Σ g_k/‖g_k‖‖² − K) / K(K − 1)."""
    runtime, state = result.setup.runtime, result.server_state
    flat = runtime.spare(0)
    flat.load(state.evaluated, state.integers)
    flat.module.eval()
    total, clients = torch.zeros(flat.layout.nP, dtype=torch.float64), 0
    with one_thread():
        for client in range(federation.clients):
            g = gradient(runtime, flat, *runtime.train(client))
            if (length := g.norm().item()) > 0:
                total, clients = total + g / length, clients + 1
    return (total.square().sum().item() - clients) / (clients * (clients - 1)) if clients > 1 else 1.0
