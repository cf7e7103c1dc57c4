"""GEN: a generalised entropy of the M largest probabilities.

Liu et al.: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, CVPR 2023.

    S(x) = −Σ_{c in the M largest} p_c^γ (1 − p_c)^γ        γ = 0.1, M = min(10, C)

Always ≤ 0, which matters when dividing by a sum: a share φ_k/Σφ of negative scores is *reversed*. Each term is at
most 4^(−γ), so S ≥ −M·4^(−γ), and `gen_floor` is what must be subtracted before shares are taken.
"""

from __future__ import annotations

import torch

from undrift.methods.scores.ash import Head

GAMMA, LARGEST = 0.1, 10


def gen(
    logits: torch.Tensor,
    features: torch.Tensor | None = None,
    head: Head | None = None,
    gamma: float = GAMMA,
    largest: int = LARGEST,
) -> torch.Tensor:
    p = logits.softmax(1).topk(min(largest, logits.size(1)), 1).values
    return -(p**gamma * (1 - p).clamp(min=0) ** gamma).sum(1)


def gen_floor(classes: int, gamma: float = GAMMA, largest: int = LARGEST) -> float:
    """The fixed lower bound of the score: −8.706 with ten classes."""
    floor: float = -min(largest, classes) * 4.0**-gamma
    return floor
