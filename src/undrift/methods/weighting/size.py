"""Clients are weighted by their number of training samples.

McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

    p_k = n_k / Σ_j n_j
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.contract.parts import Replies, Server, Weighting


@dataclass(frozen=True)
class Size(Weighting):
    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        return torch.tensor(replies.n, dtype=torch.float64)
