"""Federations from the user's own clients: their data, or a function that loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift import tasks
from undrift.contract.task import Task
from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.federation import images
from undrift.federation.federation import Federation, unseen_last
from undrift.federation.lazy import ClientArrays, LazyClients

Given = tuple[Any, Any, Any, Any]  # x, y, and the same of the test part or None


def from_clients(
    clients: Sequence[Any] | Mapping[str, Any],
    name: str,
    test_share: float,
    labels: Sequence[str] | None,
    seed: int,
    validation: float,
    unseen: float = 0.0,
    who: Sequence[str] | None = None,
    task: Any = None,
) -> Federation:
    """See `Federation.from_clients`. `who` names the clients in error messages."""
    kind = tasks.read(task)
    called = [str(one) for one in clients] if isinstance(clients, Mapping) else []
    clients = list(clients.values()) if isinstance(clients, Mapping) else clients
    who = who or called or [f"client {client}" for client in range(len(clients))]
    xs, ys, test_xs, test_ys = (list[Any]() for _ in range(4))
    shards, slices = list[np.ndarray](), list[np.ndarray]()
    at = test_at = 0
    record: dict[str, Any] = {}
    for client, given in enumerate(clients):
        x, y, x_test, y_test, shared = held_back(client_tensors(given, who[client], kind), client, test_share, seed)
        record |= {"test_share": test_share} if shared else {}
        if samples.fixed_shape(x_test) != samples.fixed_shape(x):
            raise BadRequest(
                f"{who[client]} has samples of shape {samples.fixed_shape(x)} and test samples of "
                f"{samples.fixed_shape(x_test)}; bring them to one"
            )
        for mine, first, what in ((x, xs, "samples"), (y, ys, "targets")):
            if first and samples.fixed_shape(mine) != samples.fixed_shape(first[0]):
                raise BadRequest(
                    f"{who[client]} has {what} of shape {samples.fixed_shape(mine)}, {who[0]} of "
                    f"{samples.fixed_shape(first[0])}; bring them to one"
                )
        shards.append(np.arange(at, at + len(y)))
        slices.append(np.arange(test_at, test_at + len(y_test)))
        at, test_at = at + len(y), test_at + len(y_test)
        for whole, piece in zip((xs, ys, test_xs, test_ys), (x, y, x_test, y_test)):
            whole.append(piece)
    if not xs:
        raise BadRequest("a federation needs at least one client")
    if not test_share and not any(map(len, test_ys)):
        raise BadRequest(
            "no client has a test part and test_share is 0, so no model could be evaluated; give clients as (x, y, x_test, "
            "y_test), or a test_share such as 0.2"
        )
    y, test_y = samples.joined(ys), samples.joined(test_ys)
    names = output_names(labels, kind, samples.joined([y, test_y]))
    kind = kind.with_outputs(len(names))
    for own in (ys, test_ys):
        for owner, values in zip(who, own):
            if len(values):
                kind.in_range(values, owner)
    x, test_x = images.stored(samples.joined(xs)), images.stored(samples.joined(test_xs))
    places, newcomers = unseen_last(unseen, len(shards), numpy_stream(seed, "unseen"))
    shards, slices = [shards[k] for k in places], [slices[k] for k in places]
    if newcomers:
        record["unseen"] = list(places[-newcomers:])
    return Federation(
        name, (x, y), (test_x, test_y), shards, names, slices, seed, validation, record=record, unseen=newcomers,
        names=[called[k] for k in places] if called else (), knows_clean=False, task=kind,
    )  # fmt: skip


@dataclass(frozen=True)
class Loader:
    """Loads (x, y, x_test, y_test) of a client by the user's function and checks them where the client runs."""

    function: Callable[[int], Any]
    sizes: np.ndarray
    shape: Any
    task: Task
    test_share: float
    seed: int

    def __call__(self, client: int) -> ClientArrays:
        given = client_tensors(self.function(client), f"client {client}", self.task)
        if len(given[1]) != self.sizes[client]:
            raise BadRequest(
                f"client {client} has {len(given[1])} samples, but sizes says {self.sizes[client]}; correct one"
            )
        x, y, x_test, y_test, shared = held_back(given, client, self.test_share, self.seed)
        if self.test_share and not shared:
            raise BadRequest(
                f"client {client} has a test part of its own; say test_share=0, so that it trains on all other samples"
            )
        x, x_test = images.stored(x), images.stored(x_test)
        for part in (x, x_test):
            if samples.fixed_shape(part) != self.shape:
                raise BadRequest(
                    f"client {client} has samples of shape {samples.fixed_shape(part)}, the test set of {self.shape}"
                )
        for targets in (y, y_test):
            if len(targets):
                self.task.in_range(targets, f"client {client}")
        return x, y, x_test, y_test


def from_function(
    function: Callable[[int], Any],
    sizes: Sequence[int] | np.ndarray,
    test: Any,
    name: str,
    test_share: float,
    labels: Sequence[str] | None,
    seed: int,
    task: Any = None,
) -> Federation:
    """See `Federation.from_function`."""
    kind = tasks.read(task)
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        raise BadRequest("sizes are whole numbers of at least 1, one per client")
    x, y = (samples.of(value) for value in test)
    x, y, _, _ = client_tensors((x, y), "the test set", kind)
    x = images.stored(x)
    names = output_names(labels, kind, y)
    kind = kind.with_outputs(len(names))
    kind.in_range(y, "the test set")
    loader = Loader(function, sizes, samples.fixed_shape(x), kind, test_share, seed)
    # The model is tried on samples of the server's test set: the driver has no client's data.
    trained = sizes - np.minimum(np.rint(test_share * sizes), sizes - 1).astype(np.int64)
    record = {"test_share": test_share} if test_share else {}
    return Federation(
        name,
        (x, y),
        (x, y),
        LazyClients(loader, trained),
        names,
        seed=seed,
        record=record,
        knows_clean=False,
        task=kind,
    )


def output_names(labels: Sequence[str] | None, task: Task, y: Any) -> list[str]:
    """The names of the network's outputs: those given, or as many numbers as the task or the targets ask for."""
    return list(labels or (str(c) for c in range(task.outputs or task.count(y))))


def held_back(given: Given, client: int, test_share: float, seed: int) -> tuple[Any, Any, Any, Any, bool]:
    """(x, y, x_test, y_test) of a client, and whether the test part had to be held out of its data."""
    x, y, x_test, y_test = given
    if x_test is not None and y_test is not None:
        return x, y, x_test, y_test, False
    order = torch.from_numpy(numpy_stream(seed, "test share", client).permutation(len(y)))
    held = min(round(test_share * len(y)), max(len(y) - 1, 0))
    return x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]], True


def client_tensors(given: Any, who: str, task: Task) -> Given:
    """(x, y, x_test, y_test) of what the user gave for one client, the last two None if there is no test part."""
    arrays = isinstance(given, (tuple, list)) and len(given) in (2, 4) and not isinstance(given[0], (tuple, list))
    try:
        values: list[Any] = [samples.of(v) for v in given] if arrays else stacked(given, who)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, BadRequest):
            raise
        raise BadRequest(f"{who} has samples that are not numbers of one shape: {error}; give tensors") from None
    x, y, x_test, y_test = [*values, None, None][:4]
    y = task.targets(x, y, who)
    y_test = None if y_test is None else task.targets(x_test, y_test, who)
    if not len(y):
        raise BadRequest(f"{who} has no sample; leave it out")
    whole = task.whole_inputs
    return real_inputs(x, who, whole), y, None if x_test is None else real_inputs(x_test, who, whole), y_test


def real_inputs(x: Any, who: str, whole: bool = False) -> Any:
    """Inputs as float32. What float32 cannot hold is refused: a conversion would drop imaginary parts silently. Whole
    numbers stay whole in columns and sequences, and where `whole` says so."""
    if not isinstance(x, torch.Tensor):
        return samples.mapped(x, lambda leaf: real_inputs(leaf, who, whole=True))
    if whole and not x.is_floating_point() and not x.is_complex():
        return x.long()
    if x.is_complex():
        raise BadRequest(f"{who} has complex inputs; give real numbers, such as torch.view_as_real(x)")
    x = x.float()
    if not torch.isfinite(x).all():
        raise BadRequest(f"{who} has inputs that are NaN or infinite; remove or fill them")
    return x


def stacked(pairs: Any, who: str) -> list[torch.Tensor]:
    """A dataset of (x, y) pairs as two tensors."""
    samples, labels = list[torch.Tensor](), list[torch.Tensor]()
    for place in range(len(pairs)):
        x, y = pairs[place]
        samples.append(torch.as_tensor(x))
        labels.append(torch.as_tensor(y))
        if samples[-1].shape != samples[0].shape:
            first, other = tuple(samples[0].shape), tuple(samples[-1].shape)
            raise BadRequest(f"{who} has samples of shape {first} and {other}; bring them to one")
    if not samples:
        raise BadRequest(f"{who} has no sample; leave it out")
    return [torch.stack(samples), torch.stack(labels)]
