"""A federation from the user's own clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from undrift.errors import BadRequest
from undrift.federation import Federation, rows_of
from undrift.streams import numpy_stream

Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def from_clients(
    clients: Sequence[Any], name: str, test_share: float, labels: Sequence[str] | None, seed: int, validation: float,
    who: Sequence[str] | None = None,
) -> Federation:  # fmt: skip
    who = who or [f"client {client}" for client in range(len(clients))]
    xs, ys, test_xs, test_ys = (list[torch.Tensor]() for _ in range(4))
    parts, slices = list[np.ndarray](), list[np.ndarray]()
    at = test_at = 0
    said: dict[str, Any] = {}
    for client, given in enumerate(clients):
        x, y, x_test, y_test, shared = held_back(four(given, who[client]), client, test_share, seed)
        said |= {"test_share": test_share} if shared else {}
        if xs and x.shape[1:] != xs[0].shape[1:]:
            raise BadRequest(
                f"{who[client]} has samples of shape {tuple(x.shape[1:])}, {who[0]} of {tuple(xs[0].shape[1:])}; bring them to one"
            )
        if not len(y):
            raise BadRequest(f"{who[client]} has no sample; leave it out")
        parts.append(np.arange(at, at + len(y)))
        slices.append(np.arange(test_at, test_at + len(y_test)))
        at, test_at = at + len(y), test_at + len(y_test)
        for whole, piece in zip((xs, ys, test_xs, test_ys), (x, y, x_test, y_test)):
            whole.append(piece)
    if not xs:
        raise BadRequest("a federation needs at least one client")
    y, test_y = torch.cat(ys), torch.cat(test_ys)
    lowest, highest = (int(value) for value in torch.cat([y, test_y]).aminmax())
    classes = len(labels) if labels else highest + 1
    if lowest < 0 or highest >= classes:
        raise BadRequest(f"labels must lie in 0…{classes - 1}; found {lowest} to {highest}")
    x, test_x = rows_of(torch.cat(xs)), rows_of(torch.cat(test_xs))
    if not torch.isfinite(x).all() or not torch.isfinite(test_x).all():
        raise BadRequest("the clients' inputs hold NaN or infinite values; remove or fill them")
    names = list(labels or (str(c) for c in range(classes)))
    return Federation(name, (x, y), (test_x, test_y), parts, names, slices, seed, validation, record=said)


def held_back(
    given: Four, client: int, test_share: float, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """(x, y, x_test, y_test) of a client, its test part a share of its data where it gave none, and whether that is so."""
    x, y, x_test, y_test = given
    if x_test is not None and y_test is not None:
        return x, y, x_test, y_test, False
    order = torch.from_numpy(numpy_stream(seed, "test share", client).permutation(len(y)))
    held = min(round(test_share * len(y)), max(len(y) - 1, 0))
    return x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]], True


def four(given: Any, who: str) -> Four:
    """(x, y, x_test, y_test) of whatever the user gave for one client."""
    if isinstance(given, (tuple, list)) and len(given) in (2, 4) and not isinstance(given[0], (tuple, list)):
        values = [torch.as_tensor(value) for value in given] + [None] * (4 - len(given))
    else:
        pairs = [given[i] for i in range(len(given))]
        values = [
            torch.stack([torch.as_tensor(x) for x, _ in pairs]),
            torch.tensor([int(y) for _, y in pairs]),
            None,
            None,
        ]
    for at in (1, 3):
        y = values[at]
        if y is not None and (y.dim() != 1 or y.is_floating_point()):
            raise BadRequest(
                f"{who} has labels of type {str(y.dtype).removeprefix('torch.')}; number the classes 0, 1, 2, …"
            )
    x, y, x_test, y_test = values
    assert x is not None
    assert y is not None
    if len(x) != len(y):
        raise BadRequest(f"{who} has {len(x)} samples but {len(y)} labels")
    return x.float(), y.long(), None if x_test is None else x_test.float(), None if y_test is None else y_test.long()
