"""Every published method on every task: which cells run and improve the headline, and which are refused and why.

    python -m undrift.testing.task_table        writes src/undrift/methods/tasks.json, about a minute

The problems are tiny: five clients, some hundred samples, networks of a few hundred parameters. A cell that neither
improves on the initial model nor is refused before round 0 is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.core.samples import Ragged
from undrift.experiment.runner import run
from undrift.experiment.tables import headline_value
from undrift.federation.federation import Federation
from undrift.methods.evidence import TASKS_FILE
from undrift.methods.published import PUBLISHED
from undrift.testing.toys import LowRank, needs_adapters

CLIENTS, SAMPLES, WIDTH, TOKENS = 5, 30, 8, 5
SETTINGS: dict[str, Any] = {
    "rounds": 6, "epochs": 2, "batch": 8, "lr": 0.05, "momentum": 0.5, "cohort": CLIENTS, "engine": "inline", "out": False,
    "evaluate_every": 6,
}  # fmt: skip


# What a method needs to be told on such a problem: by its name, or by its name and the task.
VARIANTS: dict[Any, str] = {
    "fedadagrad": "fedadagrad(lr=0.3)",
    ("bound", "regression"): "bound(loss=ce, M=4)",
    ("bound", "multilabel"): "bound(loss=zero_one)",
}


# Cells that need more rounds: a client of rank 1 learns one direction of the five tokens.
LONGER: dict[Any, int] = {("hetlora", "sequence"): 12}


def rows(stream: torch.Generator, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of a client, around a centre of its own, and three numbers that depend on them."""
    x = torch.randn(SAMPLES, 6, generator=stream) + 0.3 * client
    return x, torch.stack([x[:, 0] - x[:, 1], x[:, 2] + 0.5 * x[:, 3], 1.2 - x[:, 4]], 1)


def classes(stream: torch.Generator, client: int) -> tuple[Any, Any]:
    x, z = rows(stream, client)
    return x, z.argmax(1)


def values(stream: torch.Generator, client: int) -> tuple[Any, Any]:
    x, z = rows(stream, client)
    return x, z[:, 0] + 0.5 * z[:, 1]


def labels(stream: torch.Generator, client: int) -> tuple[Any, Any]:
    x, z = rows(stream, client)
    return x, (z > 0.5).long()


def sentences(stream: torch.Generator, client: int) -> tuple[Any, Any]:
    """Counting modulo five, with a wrong step now and then; of unequal length."""
    found = []
    for length in torch.randint(4, 10, (SAMPLES,), generator=stream).tolist():
        steps = 1 + (torch.rand(length, generator=stream) < 0.1).long()
        found.append((int(torch.randint(TOKENS, (1,), generator=stream)) + steps.cumsum(0)) % TOKENS)
    return Ragged([one[:-1] for one in found], pad=TOKENS), Ragged([one[1:] for one in found], pad=-1)


def pictures(stream: torch.Generator, client: int) -> tuple[Any, Any]:
    """Noisy pictures with a bright square; its mask."""
    mask = torch.zeros(SAMPLES, 6, 6, dtype=torch.long)
    for one, (top, left) in zip(mask, torch.randint(0, 4, (SAMPLES, 2), generator=stream).tolist()):
        one[top : top + 3, left : left + 3] = 1
    noise = 0.3 * torch.randn(SAMPLES, 1, 6, 6, generator=stream)
    return 2.0 * mask[:, None] + noise + 0.1 * client, mask


def network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))


def tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(TOKENS + 1, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS))


def pixels() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, WIDTH, 3, padding=1), nn.GroupNorm(1, WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, 2, 1))


# By task: the samples of a client, and a network.
PROBLEMS: dict[str, tuple[Callable[..., tuple[Any, Any]], Callable[[], nn.Module]]] = {
    "classification": (classes, lambda: network(3)),
    "sequence": (sentences, tokens),
    "regression": (values, lambda: network(1)),
    "multilabel": (labels, lambda: network(3)),
    "segmentation": (pictures, pixels),
}


@cache
def problem(task: str) -> Federation:
    """The federation of a task, with a proxy set for methods that need one."""
    samples, _ = PROBLEMS[task]
    clients = [samples(torch.Generator().manual_seed(client), client) for client in range(CLIENTS)]
    federation = Federation.from_clients(clients, name=task, task=task)
    federation.proxy_rows = np.arange(0, len(federation.y), 5)
    return federation


def network_for(method: str, task: str) -> Callable[[], nn.Module]:
    """The network of a task, with adapters for methods on them. FedMA matches units along a chain of layers, which a norm
    over all of them interrupts."""
    make = PROBLEMS[task][1]
    if needs_adapters(method):
        return lambda: with_adapter(list(make().children()))
    if method != "fedma":
        return make
    return lambda: nn.Sequential(
        *(one for one in make().children() if not isinstance(one, (nn.LayerNorm, nn.GroupNorm)))
    )


class PerPixel(nn.Module):
    """A linear layer on the channels of every pixel."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


def with_adapter(layers: list[nn.Module]) -> nn.Module:
    """A network whose first linear layer has an adapter; a convolution of one pixel is linear. The rest is trained."""
    for at, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            layers[at] = LowRank(layer, 2, merged=True)
            break
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
            layers[at] = PerPixel(LowRank(nn.Linear(layer.in_channels, layer.out_channels), 2, merged=True))
    return nn.Sequential(*layers)


def outcome(method: str, task: str, **more: Any) -> str:
    """Either "yes", "yes, as …" with the parameters it needs there, or the sentence that refuses the method."""
    federation, text = problem(task), VARIANTS.get((method, task)) or VARIANTS.get(method, method)
    try:
        rounds = LONGER.get((method, task), SETTINGS["rounds"])
        settings = {**SETTINGS, "rounds": rounds, "evaluate_every": rounds, **more}
        result = run(text, federation, model=network_for(method, task), **settings)
    except BadRequest as refused:
        return str(refused)
    runtime, headline = result.setup.runtime, federation.task.shown
    x, y = federation.evaluation_set("global")
    with torch.no_grad():
        runtime.model.load(runtime.initial)
        before = runtime.measure(runtime.model(runtime.network_input(x)), y)[headline.name]
    after = headline_value(result.summary)
    if after is None or result.setup.method.one("personalize") is not None:  # what its clients use
        after = result.summary["stages"]["L2"]["acc_local"]["mean"]
    if not headline.sign * after > headline.sign * before:
        raise AssertionError(f"{method} on {task}: {headline.name} went from {before:.4f} to {after:.4f}")
    return f"yes, as {text}" if (method, task) in VARIANTS else "yes"


def table(methods: Any = PUBLISHED) -> dict[str, dict[str, str]]:
    return {method: {task: outcome(method, task) for task in PROBLEMS} for method in methods}


if __name__ == "__main__":
    file = str(files("undrift.methods") / TASKS_FILE)
    found = table()
    with open(file, "w", encoding="utf-8") as out:
        json.dump(found, out, indent=1, ensure_ascii=False)
        out.write("\n")
