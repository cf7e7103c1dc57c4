"""Energy, with the sign that makes larger more in-distribution.

Liu et al.: Energy-based Out-of-distribution Detection, NeurIPS 2020.

    S(x) = T log Σ_c exp(z_c(x) / T)        any sign, usually positive; FLOOD's default
"""

from __future__ import annotations

import torch

from undrift.methods.scores.ash import Head


def energy(
    logits: torch.Tensor, features: torch.Tensor | None = None, head: Head | None = None, temperature: float = 1.0
) -> torch.Tensor:
    if temperature == 1.0:
        return logits.logsumexp(1)
    return temperature * (logits / temperature).logsumexp(1)
