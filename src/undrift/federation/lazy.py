"""Clients whose data are loaded where they run: a million of them need not pass through the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest

Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # x, y, x_test, y_test


@dataclass
class LazyClients(Sequence[np.ndarray]):
    """In the place of a federation's index lists. Nothing is known here but the sizes of the training parts."""

    load: Callable[[int], Four]
    sizes: np.ndarray
    last: tuple[int, Any] = (-1, None)  # a client is trained and judged in one go: it is loaded once for both

    def train(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y, _, _ = self.loaded(client)
        return x, y

    def test(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        _, _, x, y = self.loaded(client)
        return x, y

    def loaded(self, client: int) -> Four:
        if self.last[0] != client:
            self.last = client, self.load(client)
        found: Four = self.last[1]
        return found

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        raise BadRequest("the data of these clients are loaded where they run: there are no rows to look at here")
