"""Feature skew made from one data set: which client's pictures look how.

Client k, and the test samples of its slice, get the look (a transform of `domains.py`) number k mod D. So every test
sample has one look, the test set keeps its size, and a domain's test part is what its clients' slices are. Samples that
nobody holds (a proxy set, test samples of a class that nobody has) are dealt evenly: each class in equal shares.
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
from undrift.core.streams import numpy_stream, torch_stream
from undrift.data.dataset import DataSet
from undrift.federation.environment import domains

CHUNK = 1024  # a constant: what `noisy` draws must not depend on the machine


def read(given: Any) -> list[Any]:
    """`identity+rotated(30)`, a transform (a user's own function too), or a list of them; none twice."""
    looks = text.several("domain", given, {name: getattr(domains, name) for name in domains.__all__})
    for look in looks:
        if not callable(look):
            raise BadRequest(f"a domain is a name such as inverted, or a function of (images, generator), not {look!r}")
    names = list(map(called, looks))
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"domains name {name} {names.count(name)} times; name each once")
    return looks


def called(look: Any) -> str:
    """A look's name with the parameters that are not its defaults: `rotated`, `rotated(degrees=30)`."""
    if not is_dataclass(look):
        return str(getattr(look, "__name__", type(look).__name__))
    told = [f for f in fields(look) if getattr(look, f.name) != f.default]
    inside = ", ".join(f"{f.name}={text.spell(getattr(look, f.name))}" for f in told)
    return type(look).__name__.lower() + (f"({inside})" if inside else "")


class Skew:
    """The looks of one federation. `train` and `test` are the looks of samples nobody owns yet: what `by_domain` deals."""

    def __init__(self, looks: Sequence[Any], data: DataSet, seed: int) -> None:
        if len(data.shape) != 3:
            raise BadRequest(f"domains change pictures, but {data.name} is a table of {data.shape[0]} columns")
        if data.domains:
            raise BadRequest(f"{data.name} has {len(data.domains)} domains of its own; leave --domains out")
        low, high = float(data.x_train.min()), float(data.x_train.max())
        if data.x_train.dtype.kind == "f" and not 0 <= low <= high <= 1:
            raise BadRequest(
                f"domains change pictures in 0…1, but {data.name} has values from {low:g} to {high:g}; scale them"
            )
        self.looks, self.data, self.seed = looks, data, seed
        self.names = tuple(map(called, looks))
        self.train, self.test = (
            even(labels, len(looks), numpy_stream(seed, "domains", number))
            for number, labels in enumerate((data.y_train, data.y_test))
        )

    def shown(
        self, parts: Sequence[np.ndarray], slices: Sequence[np.ndarray] | None
    ) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, list[int]]:
        """Training and test images in 0…1 as their owners show them, every test sample's domain, every client's."""
        if slices is None:
            raise BadRequest(
                "domains need a partition that deals each sample once, and resample draws with replacement"
            )
        if len(parts) < len(self.looks):
            raise BadRequest(
                f"{len(parts)} clients cannot show {len(self.looks)} domains; "
                f"ask for clients={len(self.looks)} or more, or name fewer domains"
            )
        number = len(self.looks)
        train, test = of_owners(parts, number, self.train), of_owners(slices, number, self.test)
        x = self._changed(self.data.scaled(self.data.x_train), train, "train")
        test_x = self._changed(self.data.scaled(self.data.x_test), test, "test")
        return x, test_x, test, [client % number for client in range(len(parts))]

    def _changed(self, images: torch.Tensor, given: np.ndarray, split: str) -> torch.Tensor:
        with one_thread():
            for number, look in enumerate(self.looks):
                stream = torch_stream(self.seed, f"look/{split}", number)
                for rows in torch.from_numpy(np.flatnonzero(given == number)).split(CHUNK):
                    images[rows] = self._checked(look(images[rows], stream), images[rows], number)
        return images

    def _checked(self, new: Any, old: torch.Tensor, number: int) -> torch.Tensor:
        if not isinstance(new, torch.Tensor) or new.shape != old.shape or not torch.isfinite(new).all():
            raise BadRequest(f"the domain {self.names[number]} must return finite images of the shape it was given")
        return new


def even(labels: np.ndarray, looks: int, stream: np.random.Generator) -> np.ndarray:
    """A look for every sample, each class in equal shares."""
    order = stream.permutation(len(labels))
    given = np.empty(len(labels), dtype=np.int64)
    given[order[np.argsort(labels[order], kind="stable")]] = np.arange(len(labels)) % looks
    return given


def of_owners(parts: Sequence[np.ndarray], looks: int, otherwise: np.ndarray) -> np.ndarray:
    """Every sample's look is its owner's; what nobody owns keeps its own."""
    given = otherwise.copy()
    for client, part in enumerate(parts):
        given[part] = client % looks
    return given
