"""Feature skew: one image transform per client.

Client k's training samples and its test slice get transform k mod D of `domains.py`. So every test sample has one
transform, the test set keeps its size, and a domain's test part is the union of its clients' slices. Samples without a
client (the proxy set, test samples of a class that no client has) are split evenly: each class in equal shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from undrift.core import text
from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest
from undrift.core.references import answer
from undrift.core.streams import numpy_stream, torch_stream
from undrift.data.dataset import DataSet
from undrift.federation.environment import domains

IMAGES = "finite images of the shape it was given, for (images, generator)"
CHUNK = 1024  # a constant, so that the draws of `noisy` do not depend on the machine


def read(given: Any) -> list[Any]:
    """The transforms of `identity+rotated(30)`, of one transform (also a user's function) or of a list, each once."""
    transforms = text.several("domain", given, {name: getattr(domains, name) for name in domains.__all__})
    for transform in transforms:
        if not callable(transform):
            raise BadRequest(
                f"a domain is a name such as inverted, or a function of (images, generator), not {transform!r}"
            )
    names = list(map(name_of, transforms))
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"domains name {name} {names.count(name)} times; name each once")
    return transforms


def name_of(transform: Any) -> str:
    """A transform's name with the parameters that are not its defaults: `rotated`, `rotated(degrees=30)`."""
    if not is_dataclass(transform):
        return str(getattr(transform, "__name__", type(transform).__name__))
    changed = [f for f in fields(transform) if getattr(transform, f.name) != f.default]
    inside = ", ".join(f"{f.name}={text.spell(getattr(transform, f.name))}" for f in changed)
    return type(transform).__name__.lower() + (f"({inside})" if inside else "")


class FeatureSkew:
    """The transforms of one federation. `train` and `test` number the transform of every sample before the samples are
    dealt: `by_domain` deals by them, and samples that no client gets keep theirs."""

    def __init__(self, transforms: Sequence[Any], data: DataSet, seed: int) -> None:
        if len(data.shape) != 3:
            raise BadRequest(f"domains change pictures, but {data.name} is a table of {data.shape[0]} columns")
        if data.domains:
            raise BadRequest(f"{data.name} has {len(data.domains)} domains of its own; leave --domains out")
        low, high = float(data.x_train.min()), float(data.x_train.max())
        if data.x_train.dtype.kind == "f" and not 0 <= low <= high <= 1:
            raise BadRequest(
                f"domains change pictures in 0…1, but {data.name} has values from {low:g} to {high:g}; scale them"
            )
        self.transforms, self.data, self.seed = transforms, data, seed
        self.names = tuple(map(name_of, transforms))
        self.train, self.test = (
            evenly(labels, len(transforms), numpy_stream(seed, "domains", number))
            for number, labels in enumerate((data.y_train, data.y_test))
        )

    def transformed(
        self, shards: Sequence[np.ndarray], slices: Sequence[np.ndarray] | None
    ) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, list[int]]:
        """(training images, test images, every test sample's domain, every client's domain), new arrays in 0…1."""
        if slices is None:
            raise BadRequest(
                "domains need a partition that deals each sample once, and resample draws with replacement"
            )
        if len(shards) < len(self.transforms):
            raise BadRequest(
                f"{len(shards)} clients cannot show {len(self.transforms)} domains; "
                f"ask for clients={len(self.transforms)} or more, or name fewer domains"
            )
        number = len(self.transforms)
        train, test = of_owners(shards, number, self.train), of_owners(slices, number, self.test)
        x = self._apply(self.data.scaled(self.data.x_train), train, "train")
        test_x = self._apply(self.data.scaled(self.data.x_test), test, "test")
        return x, test_x, test, [client % number for client in range(len(shards))]

    def _apply(self, images: torch.Tensor, given: np.ndarray, split: str) -> torch.Tensor:
        """Transform a copy of the data's images, domain by domain."""
        with one_thread():
            for number, transform in enumerate(self.transforms):
                stream = torch_stream(self.seed, f"look/{split}", number)
                for rows in torch.from_numpy(np.flatnonzero(given == number)).split(CHUNK):
                    images[rows] = transformed_images(transform, images[rows], stream)
        return images


def transformed_images(transform: Any, old: torch.Tensor, stream: torch.Generator) -> torch.Tensor:
    """What a transform, perhaps a user's function, makes of these images."""

    def fits(new: Any) -> bool:
        return isinstance(new, torch.Tensor) and new.shape == old.shape and bool(torch.isfinite(new).all())

    found: torch.Tensor = answer("domain", transform, fits, IMAGES, old, stream)
    return found


def evenly(labels: np.ndarray, transforms: int, stream: np.random.Generator) -> np.ndarray:
    """The number of a transform for every sample, each class in equal shares."""
    order = stream.permutation(len(labels))
    given = np.empty(len(labels), dtype=np.int64)
    given[order[np.argsort(labels[order], kind="stable")]] = np.arange(len(labels)) % transforms
    return given


def of_owners(shards: Sequence[np.ndarray], transforms: int, otherwise: np.ndarray) -> np.ndarray:
    """Every sample gets its client's transform. Samples without a client keep the number in `otherwise`."""
    given = otherwise.copy()
    for client, shard in enumerate(shards):
        given[shard] = client % transforms
    return given
