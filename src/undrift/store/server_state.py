"""The server's state between two rounds, which is what a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.contract.context import Tree
from undrift.core.vector import Integers

Versions = dict[tuple[str, int], int]  # (kind, client) -> committed version


@dataclass(frozen=True)
class ServerState:
    """Immutable: a round makes the next state from the last one."""

    round: int  # the next round
    vector: torch.Tensor  # the global model
    evaluated: torch.Tensor  # the model that is evaluated
    integers: Integers  # integer buffers of the model
    memories: dict[str, Tree]  # the parts' server memory, by part
    versions: Versions
