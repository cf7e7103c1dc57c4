"""Every client has the same weight, whatever its size.

p_k = 1 / m
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Replies, Server, Weighting


@dataclass(frozen=True)
class Uniform(Weighting):
    fixed: ClassVar[bool] = True

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        return torch.ones(len(replies), dtype=torch.float64)
