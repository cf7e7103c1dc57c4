"""Who holds what: the training samples of every client, its own test slice, and the server's test set.

A federation is arrays and index lists, nothing else, so that it can be sent to a worker once, mapped, and looked into
for one client at a time; a lazy partition (`resample`) never builds the list of all clients.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from undrift.errors import BadRequest
from undrift.streams import numpy_stream

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
        self.ood: tuple[str, torch.Tensor] | None = None  # name and samples of another data set, for diagnosis
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
        shape = tuple(self.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape

    def rows(self, client: int) -> np.ndarray:
        """Training rows of a client, validation carved out."""
        return self._split(client)[0]

    def train(self, client: int) -> Rows:
        rows = torch.from_numpy(np.ascontiguousarray(self.rows(client)))
        return self.x[rows], self.renamed(client, self.y[rows])

    def counts(self, client: int) -> np.ndarray:
        return np.bincount(self.train_labels(client), minlength=self.classes)

    def train_labels(self, client: int) -> np.ndarray:
        return self.renamed(client, self.y[torch.from_numpy(np.ascontiguousarray(self.rows(client)))]).numpy()

    def slice(self, client: int) -> Rows:
        """(rows of the test set, labels) on which Acc(L) of a client is taken; empty where it has none."""
        rows = torch.from_numpy(np.ascontiguousarray(self._slice(client)))
        return rows, self.renamed(client, self.test_y[rows])

    def judged_on(self, data: str) -> Rows:
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
        """A hash of labels, sizes, the first clients' rows and a sample of the inputs: enough to notice other data."""
        digest = hashlib.sha256()
        for array in (self.y.numpy(), self.test_y.numpy(), np.ascontiguousarray(self.sizes)):
            digest.update(array.tobytes())
        for client in range(min(self.clients, 100)):
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
        from undrift.own import from_clients

        return from_clients(clients, name, test_share, labels, seed, validation, unseen)


@lru_cache(maxsize=4)
def _by_class(key: int, labels: bytes, classes: int) -> list[np.ndarray]:
    y = np.frombuffer(labels, dtype=np.int64)
    return [np.flatnonzero(y == c) for c in range(classes)]


def rows_by_class(y: torch.Tensor, classes: int) -> list[np.ndarray]:
    return _by_class(y.data_ptr(), y.numpy().tobytes(), classes)


def sizes_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    sizes = getattr(parts, "sizes", None)
    return np.asarray(sizes if sizes is not None else [len(part) for part in parts])


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """Samples as rows: images go channels last, which costs nothing when a network asks for them."""
    if x.dim() == 3:
        x = x[:, None]
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x.contiguous()


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


def spelt(value: Any, home: Any) -> Any:
    """Objects that their module exports, as the text that makes them again; anything else as it is."""
    from undrift import text

    ours = {getattr(home, name) for name in home.__all__}
    if isinstance(value, (list, tuple)):
        each = [spelt(item, home) for item in value]
        return "+".join(each) if all(isinstance(item, str) for item in each) else value
    return text.spell(value) if type(value) in ours else value


def federate(
    data: Any = "digits",
    partition: Any = "dirichlet(0.3)",
    clients: int | None = None,
    *,
    noise: Any = None,
    domains: Any = None,
    validation: float = 0.0,
    proxy: float = 0.0,
    unseen: float = 0.0,
    seed: int = 0,
    test_share: float = 0.2,
) -> Federation:
    """Deal a labelled data set to clients. `data` is a name, a path or a `DataSet`; `partition`, `noise` and `domains` are
    objects or their text, the last two also lists. Without `clients` there are as many as `natural` or `by_domain` find
    in the data, else 20. `test_share` of the samples is held out where the data have no test part."""
    from undrift import data as data_sets
    from undrift import partition as partitions
    from undrift import text
    from undrift.data.split import with_test_part
    from undrift.environment import domains as transforms
    from undrift.environment import looks
    from undrift.environment import noise as noises

    data = str(data) if isinstance(data, os.PathLike) else data
    spec = {"data": data, "partition": spelt(partition, partitions), "clients": clients, "noise": spelt(noise, noises),
            "domains": spelt(domains, transforms), "validation": validation, "proxy": proxy, "unseen": unseen,
            "data_seed": seed}  # fmt: skip
    if isinstance(partition, str):
        partition = text.build("partition", partition, {name: getattr(partitions, name) for name in partitions.__all__})
    wrong = text.several("noise", noise, {name: getattr(noises, name) for name in noises.__all__})
    for name, share in (("validation", validation), ("proxy", proxy)):
        if not 0 <= share < 1:
            raise BadRequest(f"{name} is a share of the training data, 0 ≤ {name} < 1, not {share}")
    if clients is not None and (not isinstance(clients, int) or clients < 1):
        raise BadRequest(f"a federation needs at least one client, not {clients}")
    source = data_sets.load(data) if isinstance(data, str) else data
    record: dict[str, Any] = {}
    if not len(source.y_test):
        source, record["test_share"] = with_test_part(source, test_share, seed), test_share
        spec = spec if test_share == 0.2 else {"data": source}  # no option says it, so text cannot repeat it
    y = np.asarray(source.y_train, dtype=np.int64)
    follows = getattr(partition, "follows_groups", "")
    groups, test_groups = groups_of(source, follows)
    skew = looks.Skew(looks.read(domains), source, seed) if domains else None
    if skew is not None and follows == "domain":
        groups, test_groups = skew.train, skew.test
    clients = clients or (20 if groups is None else len(np.unique(groups)))
    spec["clients"] = clients
    rows, proxy_rows = np.arange(len(y)), NOBODY
    if proxy:
        order = numpy_stream(seed, "proxy").permutation(len(y))
        held = max(1, round(proxy * len(y)))
        rows, proxy_rows = np.sort(order[held:]), np.sort(order[:held])
    noisy = y.copy()
    noisy[rows] = noises.before(wrong, y[rows], len(source.classes), seed)
    dealt = partition(noisy[rows], clients, numpy_stream(seed, "partition"), None if groups is None else groups[rows])
    record |= getattr(dealt, "record", {})
    lazy = not isinstance(dealt, list)
    parts = dealt if lazy and not len(proxy_rows) else [rows[part] for part in dealt]
    if lazy and any(one.when == "after" and not hasattr(one, "permutations") for one in wrong):
        raise BadRequest("noise after the partition needs one that deals each sample once; use when=before")
    noisy, permutations = noises.after(wrong, noisy, parts, len(source.classes), seed)
    slices = None
    if not lazy:
        if groups is not None and test_groups is not None:
            slices = [np.flatnonzero(test_groups == groups[part[0]]) for part in parts]
        else:
            matrix = partitions.matrix(parts, y, len(source.classes))
            slices = partitions.apply_matrix(matrix, source.y_test, numpy_stream(seed, "slices"))
    x, test_x, names, test_domain = source.x_train, source.x_test, source.domains, source.domain_test
    if skew is not None:
        x, test_x, test_domain, record["domain"] = skew.shown(parts, slices)
        names = skew.names
    places, newcomers = unseen_last(unseen, len(parts), numpy_stream(seed, "unseen"))
    if newcomers and not lazy:  # clients of a lazy deal differ by their number alone: the last ones are as good as any
        parts = [parts[k] for k in places]
        slices = [slices[k] for k in places] if slices is not None else None
        permutations = {new: permutations[old] for new, old in enumerate(places) if old in permutations}
        record["unseen"] = list(places[-newcomers:])
        if "domain" in record:
            record["domain"] = [record["domain"][k] for k in places]
    named = source.name if not isinstance(data, str) else data
    return Federation(
        named,
        (rows_of(source.standardised(x)), torch.from_numpy(noisy)),
        (rows_of(source.standardised(test_x)), torch.from_numpy(np.asarray(source.y_test, dtype=np.int64))),
        parts, source.classes, slices, seed, validation, proxy_rows, torch.from_numpy(y), permutations,
        spec if all(value is None or isinstance(value, (str, int, float)) for value in spec.values()) else None, record,
        (source.mean, source.std),
        {} if test_domain is None else {name: np.flatnonzero(test_domain == i) for i, name in enumerate(names)},
        newcomers,
    )  # fmt: skip


def groups_of(source: Any, follows: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(train, test) ids of the groups a partition follows: the data's clients for `natural` (their domains, where no
    client is named), their domains for `by_domain`."""
    if follows == "client" and source.client_train is not None:
        return source.client_train, source.client_test
    return (source.domain_train, source.domain_test) if follows else (None, None)
