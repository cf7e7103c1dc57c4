"""MSP: the largest softmax probability.

Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks, ICLR
2017.

    S(x) = max_c p_c(x)        in (0, 1]
"""

from __future__ import annotations

import torch

from undrift.methods.scores.ash import Head


def msp(logits: torch.Tensor, features: torch.Tensor | None = None, head: Head | None = None) -> torch.Tensor:
    return logits.softmax(1).amax(1)
