"""Clients whose data are loaded where they run, so that the driver never holds the data of a million clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest

ClientArrays = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # x, y, x_test, y_test


@dataclass
class LazyClients(Sequence[np.ndarray]):
    """Takes the place of a federation's shards. Only the sizes of the training parts are known here."""

    load: Callable[[int], ClientArrays]
    sizes: np.ndarray
    last: tuple[int, Any] = (-1, None)  # a client is trained and evaluated in one go, so it is loaded once

    def train(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y, _, _ = self.loaded(client)
        return x, y

    def test(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        _, _, x, y = self.loaded(client)
        return x, y

    def loaded(self, client: int) -> ClientArrays:
        if self.last[0] != client:
            self.last = client, self.load(client)
        arrays: ClientArrays = self.last[1]
        return arrays

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        raise BadRequest("the data of these clients are loaded where they run, so the driver has no rows of theirs")
