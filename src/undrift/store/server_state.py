"""What the server knows between two rounds: what a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.contract.context import Tree
from undrift.core.vector import Integers

Versions = dict[tuple[str, int], int]  # (kind, client) -> committed version


@dataclass(frozen=True)
class ServerState:
    round: int  # the next one to do
    vector: torch.Tensor
    evaluated: torch.Tensor
    integers: Integers
    memories: dict[str, Tree]
    versions: Versions
