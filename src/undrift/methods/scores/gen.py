"""GEN: a generalised entropy of the M largest probabilities.

Liu et al.: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, CVPR 2023.

    S(x) = −Σ_{c in the M largest} p_c^γ (1 − p_c)^γ        γ = 0.1, M = min(10, C)

Always ≤ 0, which matters when dividing by a sum: a share φ_k/Σφ of negative scores is *reversed*. Each term is at
most 4^(−γ), so S ≥ −M·4^(−γ), and `gen_floor` is what must be subtracted before shares are taken.

The trap: in float32 a confident p rounds to 1, so 1 − p is 0, while (10⁻⁹)^0.1 is 0.126. The terms are computed from
logarithms, and log(1 − p) of the largest p from the other logits.
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
    ordered = logits.log_softmax(1).sort(1, descending=True).values
    log_rest = torch.cat([ordered[:, 1:].logsumexp(1, keepdim=True), torch.log1p(-ordered[:, 1:].exp())], 1)
    terms = gamma * (ordered + log_rest)
    return -terms[:, : min(largest, logits.size(1))].exp().sum(1)


def gen_floor(classes: int, gamma: float = GAMMA, largest: int = LARGEST) -> float:
    """The fixed lower bound of the score: −8.706 with ten classes."""
    floor: float = -min(largest, classes) * 4.0**-gamma
    return floor
