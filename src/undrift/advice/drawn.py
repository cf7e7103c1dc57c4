"""A seeded sample of a federation's training data, small enough to look at in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from undrift.core.samples import Columns, joined
from undrift.core.streams import numpy_stream
from undrift.federation import images
from undrift.federation.federation import Federation

CLIENTS, SAMPLES = 100, 6000  # at most, of which the inputs are compared
SIDE = 32  # of an image: a larger one is averaged down


@dataclass(frozen=True)
class Drawn:
    """Samples of some clients. All labels are as their client calls them."""

    x: Any
    y: Any
    client: np.ndarray  # of every sample
    clients: tuple[int, ...]  # that were drawn
    whole: bool  # nothing was left out

    def __len__(self) -> int:
        return len(self.client)


def drawn(federation: Federation, clients: int = CLIENTS, samples: int = SAMPLES) -> Drawn:
    """At most so many clients and samples. A client keeps its share of the samples, and at least one."""
    stream = numpy_stream(federation.seed, "advice")
    chosen = np.arange(federation.clients)
    if federation.clients > clients:
        chosen = np.sort(stream.choice(federation.clients, clients, replace=False))
    share = min(1.0, samples / int(federation.sizes[chosen].sum()))
    xs, ys, owners = list[Any](), list[Any](), list[int]()
    for client in chosen.tolist():
        x, y = federation.train(client)
        if share < 1:
            rows = stream.permutation(len(y))[: max(1, round(share * len(y)))]
            x, y = x[torch.from_numpy(np.sort(rows))], y[torch.from_numpy(np.sort(rows))]
        xs.append(x)
        ys.append(y)
        owners += [client] * len(y)
    whole = share == 1 and len(chosen) == federation.clients
    return Drawn(joined(xs), joined(ys), np.array(owners), tuple(chosen.tolist()), whole)


def as_table(x: Any) -> np.ndarray | None:
    """One row of numbers per sample, each column of deviation 1 (pixels keep theirs). None where inputs are tokens or
    sequences: they have no common axes."""
    if isinstance(x, Columns):
        tables = [as_table(column) for _, column in sorted(x.items())]
        return None if any(table is None for table in tables) else np.concatenate(tables, axis=1)  # type: ignore[arg-type]
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return None
    if images.is_image(x):
        pictures = images.network_input(x)
        if max(pictures.shape[2:]) > SIDE:
            pictures = functional.interpolate(pictures, size=(SIDE, SIDE), mode="area")
        table: np.ndarray = pictures.reshape(len(x), -1).numpy()
        return table
    table = x.reshape(len(x), -1).numpy()
    spread = table.std(0)
    return (table - table.mean(0)) / np.where(spread > 0, spread, 1)
