"""`Federation`: the training samples of every client, its own test slice, and the server's test set.

A federation consists of arrays and index lists only. So it can be sent to a worker once, mapped into shared memory, and
read one client at a time. A lazy partition (`resample`) never builds the list of all clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from undrift import tasks
from undrift.contract.task import Task
from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.federation import images
from undrift.federation.checks import no_validation
from undrift.federation.lazy import LazyClients

Samples = tuple[Any, Any]  # x, y: tensors, columns or sequences (`core/samples.py`)
NO_ROWS = np.empty(0, dtype=np.int64)
VALIDATORS = 1000  # clients of a lazy federation on whose validation data the global model is evaluated


class Federation:
    """Inputs are float32 and standardised: tables (n, features), images (n, height, width, channels). They may also be
    columns or sequences, whose integers stay integers. `labels` names the classes, or what else the network's outputs are.

    `shards` holds one index array into the training set per client, `slices` one into the test set."""

    def __init__(
        self,
        name: str,
        train: Samples,
        test: Samples,
        shards: Sequence[np.ndarray],
        labels: Sequence[str],
        slices: Sequence[np.ndarray] | None = None,
        seed: int = 0,
        validation: float = 0.0,
        proxy: np.ndarray = NO_ROWS,
        clean: torch.Tensor | None = None,
        permutations: dict[int, np.ndarray] | None = None,
        spec: dict[str, Any] | None = None,
        record: dict[str, Any] | None = None,
        scale: tuple[Sequence[float], Sequence[float]] | None = None,
        domains: dict[str, np.ndarray] | None = None,
        unseen: int = 0,
        names: Sequence[str] = (),
        knows_clean: bool = True,
        task: Task | None = None,
    ) -> None:
        self.names = tuple(names)  # of the clients (berlin, oslo); empty if they have none
        self.knows_clean = knows_clean  # whether somebody knows which labels are wrong: not of a user's own data
        self.name, self.labels, self.shards, self.seed, self.validation = name, tuple(labels), shards, seed, validation
        self.task = (task or tasks.read(None)).with_outputs(len(self.labels))  # what y means
        self.x, self.y = train
        self.test_x, self.test_y = test
        self.clean_y = self.y if clean is None else clean  # labels before noise
        self.permutations = permutations or {}
        self.proxy_rows = proxy
        self.spec = spec  # the options that build it again; None if it was built from objects
        self.record = record or {}
        self.scale = scale  # (mean, deviation) the inputs were standardised with
        self.domains = domains or {}  # test rows by domain; each client's domain is in record["domain"]
        self._slices = slices
        self.unseen = unseen  # the number of clients that never train; they have the last shards
        # Set if the data are loaded where a client runs.
        self.lazy_clients = shards if isinstance(shards, LazyClients) else None
        sizes = sizes_of(shards)
        if validation and not held_out(sizes, validation).any():
            raise no_validation(validation, int(sizes.max(initial=0)))
        sizes = sizes[: self.clients]
        self.sizes = sizes - held_out(sizes, validation) if validation else sizes
        self._validation_rows: np.ndarray | None = None  # made at the first evaluation

    @property
    def clients(self) -> int:
        """The number of clients that train. Newcomers have the numbers after them."""
        return len(self.shards) - self.unseen

    @property
    def newcomers(self) -> range:
        """The clients that never train: they are only evaluated."""
        return range(self.clients, len(self.shards))

    @property
    def classes(self) -> int:
        return len(self.labels)

    @property
    def total(self) -> int:
        return int(self.sizes.sum())

    @property
    def shape(self) -> Any:
        """The shape of one sample as a network sees it (channels first); of columns one shape by name."""
        return images.sample_shape(self.x)

    def rows(self, client: int) -> np.ndarray:
        """A client's rows of the training set, without its validation rows."""
        # At a site the shards are a view of its own data, under a number that may lie after the clients that train.
        known = self.client_number(client, len(self.shards)) if isinstance(self.shards, list) else client
        return self._split(known)[0]

    def client_number(self, client: Any, clients: int) -> int:
        """The number of a client, given by its number or its name."""
        if isinstance(client, str) and client in self.names[:clients]:
            return self.names.index(client)
        if isinstance(client, (int, np.integer)) and not isinstance(client, bool) and 0 <= client < clients:
            return int(client)
        named = f" and called {', '.join(self.names[:5])}{', …' * (len(self.names) > 5)}" if self.names else ""
        raise BadRequest(f"there is no client {client!r}; clients are numbered 0 to {clients - 1}{named}")

    def client_name(self, client: int) -> str:
        return self.names[client] if client < len(self.names) else f"client {client}"

    def train(self, client: int) -> Samples:
        """(x, y) a client trains on."""
        if self.lazy_clients is not None:
            return self.lazy_clients.train(client)
        rows, y = self.train_rows(client)
        return self.x[rows], y

    def train_rows(self, client: int) -> tuple[torch.Tensor, Any]:
        """(rows of the training set, y) a client trains on."""
        rows = torch.from_numpy(np.ascontiguousarray(self.rows(client)))
        return rows, self.renamed(client, self.y[rows])

    def counts(self, client: int) -> np.ndarray:
        """How many training samples of each class a client has. Without classes all are of one."""
        return np.bincount(self.train_labels(client), minlength=self.classes if self.has_labels else 1)

    @property
    def has_labels(self) -> bool:
        """Whether every sample has one class."""
        return "labels" in self.task.provides

    def class_of(self, y: Any) -> torch.Tensor:
        """The class of every sample; 0 for all if there are no classes."""
        found = self.task.labels(y)
        return torch.zeros(len(y), dtype=torch.long) if found is None else found

    def train_labels(self, client: int) -> np.ndarray:
        if self.lazy_clients is not None:
            return self.class_of(self.lazy_clients.train(client)[1]).numpy()
        return self.class_of(self.train_rows(client)[1]).numpy()

    def slice(self, client: int) -> Samples:
        """(rows of the test set, labels) on which a client's own accuracy is computed. Empty if it has none."""
        rows = torch.from_numpy(np.ascontiguousarray(self._slice(client)))
        return rows, self.renamed(client, self.test_y[rows])

    def own_test(self, client: int) -> Samples:
        """(x, y) of a client's own test part, also if it is loaded where the client runs."""
        if self.lazy_clients is not None:
            return self.lazy_clients.test(client)
        rows, labels = self.slice(client)
        return self.test_x[rows], labels

    def own_validation(self, client: int) -> Samples:
        """(x, y) of a client's own validation part, with the labels that it would train on. Empty if it has none."""
        rows = torch.from_numpy(np.ascontiguousarray(self._split(client)[1]))
        return self.x[rows], self.renamed(client, self.y[rows])

    def validation_slice(self, client: int) -> Samples:
        """(places in the validation set, labels) of a client's own validation part, for one of the `validators`."""
        rows = self._split(client)[1]
        places = np.searchsorted(self.validation_rows(), rows)
        return torch.from_numpy(places), self.renamed(client, self.y[torch.from_numpy(np.ascontiguousarray(rows))])

    def evaluation_set(self, data: str, span: tuple[int, int] | None = None) -> Samples:
        """The whole test set ("global"), or the union of the clients' validation data ("validation"), or a span of it."""
        if data == "validation":
            held = self.validation_rows()
            rows = torch.from_numpy(held if span is None else held[span[0] : span[1]])
            return self.x[rows], self.y[rows]
        start, stop = span or (0, len(self.test_y))
        return self.test_x[start:stop], self.test_y[start:stop]

    def evaluation_labels(self, data: str) -> Any:
        """The labels of `evaluation_set`, without copying its inputs."""
        return self.y[torch.from_numpy(self.validation_rows())] if data == "validation" else self.test_y

    def validation_rows(self) -> np.ndarray:
        """The rows of the validators' validation parts, each once."""
        if self._validation_rows is None:
            self._validation_rows = np.unique(np.concatenate([self._split(client)[1] for client in self.validators]))
        return self._validation_rows

    @property
    def validators(self) -> Sequence[int]:
        """The clients whose validation parts make the validation set: all, or where shards are computed on demand
        (`resample`) at most `VALIDATORS`, evenly spaced, because to read a million clients would take minutes."""
        if isinstance(self.shards, list) or self.clients <= VALIDATORS:
            return range(self.clients)
        found: list[int] = np.linspace(0, self.clients - 1, VALIDATORS).astype(int).tolist()
        return found

    def proxy(self) -> Samples | None:
        """(x, y) of the server's proxy set, or None."""
        rows = torch.from_numpy(self.proxy_rows)
        return (self.x[rows], self.y[rows]) if len(rows) else None

    def renamed(self, client: int, y: Any) -> Any:
        """The labels after this client's permutation of the classes (concept shift)."""
        return torch.from_numpy(self.permutations[client])[y] if client in self.permutations else y

    def _split(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """(training rows, validation rows) of a client."""
        rows = self.shards[client]
        if not self.validation:
            return rows, NO_ROWS
        order = numpy_stream(self.seed, "validation", client).permutation(len(rows))
        held = int(held_out(np.int64(len(rows)), self.validation))
        return rows[np.sort(order[held:])], rows[np.sort(order[:held])]

    def _slice(self, client: int) -> np.ndarray:
        if self._slices is not None:
            return self._slices[client]
        # The test set was not dealt: draw from it with the client's label shares.
        classes = self.classes if self.has_labels else 1
        counts = np.bincount(self.class_of(self.clean_y[self.shards[client]]).numpy(), minlength=classes)
        stream = numpy_stream(self.seed, "slice", client)
        size = max(20, round(len(self.test_y) * counts.sum() / len(self.y)))
        by_class = rows_by_class(self.class_of(self.test_y), classes)
        drawn = stream.multinomial(size, counts / counts.sum())
        return np.concatenate([stream.choice(by_class[c], k) for c, k in enumerate(drawn) if k and len(by_class[c])])

    def move_arrays(self, shared: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace every array by `shared(array)`, which holds the same values in memory that workers map.

        This changes the federation in place, on purpose: the driver then keeps one copy of the data, not two. The
        tensors it was built from are not touched, and no value changes."""
        same = self.clean_y is self.y
        self.x, self.y, self.test_x, self.test_y = (
            samples.mapped(one, shared) for one in (self.x, self.y, self.test_x, self.test_y)
        )
        self.clean_y = self.y if same else samples.mapped(self.clean_y, shared)

    @property
    def fingerprint(self) -> str:
        """A hash of the labels, the sizes, the first 100 clients' rows and about 1000 inputs of each set: it detects
        other data. With `from_function` it covers the sizes and the test set only."""
        digest = hashlib.sha256()
        for leaf in (*samples.leaves(self.y), *samples.leaves(self.test_y)):
            digest.update(leaf.numpy().tobytes())
        digest.update(np.ascontiguousarray(self.sizes).tobytes())
        for client in range(min(self.clients, 100) if self.lazy_clients is None else 0):
            digest.update(np.ascontiguousarray(self.rows(client)).tobytes())
        for x in (self.x, self.test_x):
            for leaf in samples.leaves(x[:: max(1, len(x) // 1000)]):
                digest.update(leaf.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def provenance(self) -> dict[str, Any]:
        """How the federation was dealt: draws, repairs, unused samples and, for up to 1000 clients, sizes and names."""
        record: dict[str, Any] = {k: value for k, value in self.record.items() if isinstance(value, (int, float, str))}
        if self.clients > 1000:
            return record
        record["sizes"] = " ".join(map(str, self.sizes.tolist()))
        return record | ({"names": list(self.names)} if self.names else {})

    @staticmethod
    def from_clients(
        clients: Sequence[Any] | Mapping[str, Any],
        *,
        name: str = "own",
        test_share: float = 0.2,
        labels: Sequence[str] | None = None,
        seed: int = 0,
        validation: float = 0.0,
        unseen: float = 0.0,
        task: Any = None,
    ) -> Federation:
        """A federation from the user's clients: each is (x, y), (x, y, x_test, y_test) or a dataset of (x, y) pairs. A
        dict of clients by name ({"berlin": …, "oslo": …}) keeps their names.

        For a client without a test part `test_share` of its data is held out. The server's test set is the union of the
        clients' test parts. Inputs are used as given (float32, images channels first).

        `task` is a task or its text (classification). x and y may be dicts of arrays with one row per sample, or
        `ud.Ragged` sequences of unequal length: their integers stay integers, and so do those of a task `sequence`."""
        from undrift.federation.from_clients import from_clients

        return from_clients(clients, name, test_share, labels, seed, validation, unseen, task=task)

    @staticmethod
    def from_function(
        load: Callable[[int], Any],
        sizes: Sequence[int] | np.ndarray,
        test: Any,
        *,
        name: str = "own",
        test_share: float = 0.2,
        labels: Sequence[str] | None = None,
        seed: int = 0,
        task: Any = None,
    ) -> Federation:
        """A federation whose data stay where they are. `load(client)` is called where the client runs, in every round
        in which it takes part, and returns what `from_clients` takes for one client. `sizes` are the numbers of samples
        it returns, of which `test_share` become the client's test part (0 if it returns a test part, or none is
        wanted). `test` is the server's test set (x, y), which the driver needs."""
        from undrift.federation.from_clients import from_function

        return from_function(load, sizes, test, name, test_share, labels, seed, task)


@lru_cache(maxsize=4)
def _by_class(key: int, labels: bytes, classes: int) -> list[np.ndarray]:
    y = np.frombuffer(labels, dtype=np.int64)
    return [np.flatnonzero(y == c) for c in range(classes)]


def rows_by_class(y: torch.Tensor, classes: int) -> list[np.ndarray]:
    return _by_class(y.data_ptr(), y.numpy().tobytes(), classes)


def sizes_of(shards: Sequence[np.ndarray]) -> np.ndarray:
    sizes = getattr(shards, "sizes", None)
    return np.asarray(sizes if sizes is not None else [len(shard) for shard in shards])


def held_out(sizes: Any, validation: float) -> Any:
    """How many samples of clients of these sizes are validation data. One stays for training."""
    return np.maximum(np.minimum(np.rint(validation * sizes).astype(np.int64), sizes - 1), 0)


def unseen_last(share: float, clients: int, stream: np.random.Generator) -> tuple[Sequence[int], int]:
    """(the clients in a new order, how many of the last never train). They are drawn at random, because a partition may
    deal in order (one domain after the other)."""
    if not 0 <= share < 1:
        raise BadRequest(f"unseen is a share of the clients, 0 ≤ unseen < 1, not {share}")
    if not share:
        return range(clients), 0
    count = max(1, int(share * clients + 0.5))
    if count >= clients:
        raise BadRequest(f"unseen {share:g} of {clients} clients leaves no client to train; hold out a smaller share")
    held = set(stream.choice(clients, count, replace=False).tolist())
    return [k for k in range(clients) if k not in held] + sorted(held), count
