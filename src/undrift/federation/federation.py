"""Who holds what: the training samples of every client, its own test slice, and the server's test set.

A federation is arrays and index lists, nothing else, so that it can be sent to a worker once, mapped, and looked into
for one client at a time; a lazy partition (`resample`) never builds the list of all clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.federation import images
from undrift.federation.lazy import LazyClients

Rows = tuple[torch.Tensor, torch.Tensor]
NOBODY = np.empty(0, dtype=np.int64)


class Federation:
    """Samples lie as rows: tables (n, features), images (n, height, width, channels), standardised, float32."""

    def __init__(
        self,
        name: str,
        train: Rows,
        test: Rows,
        parts: Sequence[np.ndarray],
        labels: Sequence[str],
        slices: Sequence[np.ndarray] | None = None,
        seed: int = 0,
        validation: float = 0.0,
        proxy: np.ndarray = NOBODY,
        clean: torch.Tensor | None = None,
        permutations: dict[int, np.ndarray] | None = None,
        spec: dict[str, Any] | None = None,
        record: dict[str, Any] | None = None,
        scale: tuple[Sequence[float], Sequence[float]] | None = None,
        domains: dict[str, np.ndarray] | None = None,
        unseen: int = 0,
    ) -> None:
        self.name, self.labels, self.parts, self.seed, self.validation = name, tuple(labels), parts, seed, validation
        self.x, self.y = train
        self.test_x, self.test_y = test
        self.clean_y = self.y if clean is None else clean  # labels before noise
        self.permutations = permutations or {}
        self.proxy_rows = proxy
        self.spec = spec  # the words that make it again; None where it was made of objects
        self.record = record or {}
        self.scale = scale  # (mean, deviation) the inputs were standardised with
        self.domains = domains or {}  # rows of the test set by domain; which client is of which is record["domain"]
        self._slices = slices
        self.unseen = unseen  # so many of the last parts belong to clients that never train
        self.lazy_clients = (
            parts if isinstance(parts, LazyClients) else None
        )  # data that are loaded where a client runs
        self.sizes = (
            sizes_of(parts)[: self.clients]
            if not validation
            else np.array([len(self.rows(k)) for k in range(self.clients)])
        )

    @property
    def clients(self) -> int:
        """Those that train; newcomers have the numbers after them."""
        return len(self.parts) - self.unseen

    @property
    def newcomers(self) -> range:
        return range(self.clients, len(self.parts))

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def total(self) -> int:
        return int(self.sizes.sum())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample as a network sees it (channels first)."""
        return images.sample_shape(self.x)

    def rows(self, client: int) -> np.ndarray:
        """Training rows of a client, validation carved out."""
        return self._split(client)[0]

    def train(self, client: int) -> Rows:
        if self.lazy_clients is not None:
            return self.lazy_clients.train(client)
        rows = torch.from_numpy(np.ascontiguousarray(self.rows(client)))
        return self.x[rows], self.renamed(client, self.y[rows])

    def counts(self, client: int) -> np.ndarray:
        return np.bincount(self.train_labels(client), minlength=self.classes)

    def train_labels(self, client: int) -> np.ndarray:
        if self.lazy_clients is not None:
            return self.lazy_clients.train(client)[1].numpy()
        return self.renamed(client, self.y[torch.from_numpy(np.ascontiguousarray(self.rows(client)))]).numpy()

    def slice(self, client: int) -> Rows:
        """(rows of the test set, labels) on which Acc(L) of a client is taken; empty where it has none."""
        rows = torch.from_numpy(np.ascontiguousarray(self._slice(client)))
        return rows, self.renamed(client, self.test_y[rows])

    def own_test(self, client: int) -> Rows:
        """(x, y) of a client's own test part, wherever it is."""
        if self.lazy_clients is not None:
            return self.lazy_clients.test(client)
        rows, labels = self.slice(client)
        return self.test_x[rows], labels

    def evaluation_set(self, data: str) -> Rows:
        """The whole test set ("global"), or the union of the clients' validation data ("validation")."""
        if data == "validation":
            rows = torch.from_numpy(self.validation_rows())
            return self.x[rows], self.y[rows]
        return self.test_x, self.test_y

    def validation_rows(self) -> np.ndarray:
        parts = [self._split(client)[1] for client in range(self.clients)]
        return np.unique(np.concatenate(parts)) if parts else NOBODY

    def proxy(self) -> Rows | None:
        rows = torch.from_numpy(self.proxy_rows)
        return (self.x[rows], self.y[rows]) if len(rows) else None

    def renamed(self, client: int, y: torch.Tensor) -> torch.Tensor:
        """Labels as this client calls them (concept shift)."""
        return torch.from_numpy(self.permutations[client])[y] if client in self.permutations else y

    def _split(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.parts[client]
        if not self.validation:
            return rows, NOBODY
        order = numpy_stream(self.seed, "validation", client).permutation(len(rows))
        held = min(round(self.validation * len(rows)), len(rows) - 1)
        return rows[np.sort(order[held:])], rows[np.sort(order[:held])]

    def _slice(self, client: int) -> np.ndarray:
        if self._slices is not None:
            return self._slices[client]
        # No deal of the test set: draw from it with the client's label shares.
        counts = np.bincount(self.clean_y.numpy()[self.parts[client]], minlength=self.classes)
        stream = numpy_stream(self.seed, "slice", client)
        size = max(20, round(len(self.test_y) * counts.sum() / len(self.y)))
        by_class = rows_by_class(self.test_y, self.classes)
        drawn = stream.multinomial(size, counts / counts.sum())
        return np.concatenate([stream.choice(by_class[c], k) for c, k in enumerate(drawn) if k and len(by_class[c])])

    def map(self, shared: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Exchange the arrays for the same ones elsewhere (in memory that workers share)."""
        same = self.clean_y is self.y
        self.x, self.y, self.test_x, self.test_y = map(shared, (self.x, self.y, self.test_x, self.test_y))
        self.clean_y = self.y if same else shared(self.clean_y)

    @property
    def fingerprint(self) -> str:
        """A hash of labels, sizes, the first clients' rows and a sample of the inputs: enough to notice other data (where
        they are loaded elsewhere: of the sizes and the test set)."""
        digest = hashlib.sha256()
        for array in (self.y.numpy(), self.test_y.numpy(), np.ascontiguousarray(self.sizes)):
            digest.update(array.tobytes())
        for client in range(min(self.clients, 100) if self.lazy_clients is None else 0):
            digest.update(np.ascontiguousarray(self.rows(client)).tobytes())
        for x in (self.x, self.test_x):
            digest.update(x[:: max(1, len(x) // 1000)].contiguous().numpy().tobytes())
        return digest.hexdigest()

    def told(self) -> dict[str, Any]:
        """How it came to be: draws, repairs, what was left out, and (of up to 1000 clients) the sizes."""
        told = {name: value for name, value in self.record.items() if isinstance(value, (int, float, str))}
        return told | ({"sizes": " ".join(map(str, self.sizes.tolist()))} if self.clients <= 1000 else {})

    @staticmethod
    def from_clients(
        clients: Sequence[Any], *, name: str = "own", test_share: float = 0.2, labels: Sequence[str] | None = None,
        seed: int = 0, validation: float = 0.0, unseen: float = 0.0,
    ) -> Federation:  # fmt: skip
        """A federation from the user's own clients: each is (x, y), (x, y, x_test, y_test) or a dataset of (x, y) pairs.

        A client without a test part gives `test_share` of its data; the server's test set is the union of the
        clients'. Inputs are taken as they are (float32, images channels first)."""
        from undrift.federation.from_clients import from_clients

        return from_clients(clients, name, test_share, labels, seed, validation, unseen)

    @staticmethod
    def from_function(
        load: Callable[[int], Any], sizes: Sequence[int] | np.ndarray, test: Any, *, name: str = "own",
        test_share: float = 0.2, labels: Sequence[str] | None = None, seed: int = 0,
    ) -> Federation:  # fmt: skip
        """A federation whose data stay where they are: `load(client)` is called where the client runs, in every round in
        which it takes part, and gives what `from_clients` takes. `sizes` are the numbers of samples it gives, of which
        `test_share` become the client's test part (0 where it gives one of its own, or none is wanted); `test` is the
        server's test set (x, y), which must be here."""
        from undrift.federation.from_clients import from_function

        return from_function(load, sizes, test, name, test_share, labels, seed)


@lru_cache(maxsize=4)
def _by_class(key: int, labels: bytes, classes: int) -> list[np.ndarray]:
    y = np.frombuffer(labels, dtype=np.int64)
    return [np.flatnonzero(y == c) for c in range(classes)]


def rows_by_class(y: torch.Tensor, classes: int) -> list[np.ndarray]:
    return _by_class(y.data_ptr(), y.numpy().tobytes(), classes)


def sizes_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    sizes = getattr(parts, "sizes", None)
    return np.asarray(sizes if sizes is not None else [len(part) for part in parts])


def unseen_last(share: float, clients: int, stream: np.random.Generator) -> tuple[Sequence[int], int]:
    """(the clients in a new order, how many of the last never train): drawn at random, because a recipe may deal in
    order (one domain after the other)."""
    if not 0 <= share < 1:
        raise BadRequest(f"unseen is a share of the clients, 0 ≤ unseen < 1, not {share}")
    if not share:
        return range(clients), 0
    count = max(1, int(share * clients + 0.5))
    if count >= clients:
        raise BadRequest(f"unseen {share:g} of {clients} clients leaves nobody to train; hold out a smaller share")
    held = set(stream.choice(clients, count, replace=False).tolist())
    return [k for k in range(clients) if k not in held] + sorted(held), count
