"""MaxLogit: the largest logit.

Hendrycks et al.: Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.

    S(x) = max_c z_c(x)        any sign
"""

from __future__ import annotations

import torch

from undrift.methods.scores.ash import Head


def maxlogit(logits: torch.Tensor, features: torch.Tensor | None = None, head: Head | None = None) -> torch.Tensor:
    return logits.amax(1)
