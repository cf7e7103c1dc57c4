"""ASH: the energy of logits recomputed from a pruned feature.

Djurisic et al.: Extremely Simple Activation Shaping for Out-of-Distribution Detection, ICLR 2023.

Of a feature f with D entries the k = D − round(D·p/100) largest are kept (index set K), the others become zero;
with s₁ = Σ f before and s₂ = Σ_K f after the pruning

    ASH-P   f' = f on K        ASH-B   f' = s₁/k on K        ASH-S   f' = f·exp(s₁/s₂) on K

The trap: the public routine writes in place and would corrupt the loss. Here the feature is only read, and the loss
uses the ordinary logits. ASH-S is 0/0 on an all-zero feature, and its factor can reach e^20 at p = 95: s₂ is clamped to
≥ 1e-12 and the exponent to ≤ 10; a client notes on how many samples that changed its score. `ash-s-raw` is the formula without
these guards. At least one entry is kept, however small D is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Head = Callable[[torch.Tensor], torch.Tensor]  # features (B, D) → logits (B, C)
PERCENTILE = 95.0
LEAST, LARGEST = 1e-12, 10.0  # ASH-S: of s₂, and of the exponent


def pruned(f: torch.Tensor, percentile: float) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(f on K and 0 elsewhere, 1 on K and 0 elsewhere, k)."""
    k = max(1, f.size(1) - round(f.size(1) * percentile / 100))
    kept = torch.zeros_like(f).scatter_(1, f.topk(k, 1).indices, 1.0)
    return f * kept, kept, k


def ash_p(logits: torch.Tensor, features: torch.Tensor, head: Head, percentile: float = PERCENTILE) -> torch.Tensor:
    return head(pruned(features, percentile)[0]).logsumexp(1)


def ash_b(logits: torch.Tensor, features: torch.Tensor, head: Head, percentile: float = PERCENTILE) -> torch.Tensor:
    _, kept, k = pruned(features, percentile)
    return head(kept * (features.sum(1, keepdim=True) / k)).logsumexp(1)


def ash_s(logits: torch.Tensor, features: torch.Tensor, head: Head, percentile: float = PERCENTILE) -> torch.Tensor:
    f, _, _ = pruned(features, percentile)
    exponent = features.sum(1, keepdim=True) / f.sum(1, keepdim=True).clamp(min=LEAST)
    return head(f * exponent.clamp(max=LARGEST).exp()).logsumexp(1)


def ash_s_raw(logits: torch.Tensor, features: torch.Tensor, head: Head, percentile: float = PERCENTILE) -> torch.Tensor:
    f, _, _ = pruned(features, percentile)
    return head(f * (features.sum(1, keepdim=True) / f.sum(1, keepdim=True)).exp()).logsumexp(1)


def guarded(features: torch.Tensor, percentile: float = PERCENTILE) -> int:
    """How many samples ASH-S scores otherwise than `ash_s_raw`, because of its two guards."""
    s1, s2 = features.sum(1), pruned(features, percentile)[0].sum(1)
    return int(((s2 < LEAST) | (s1 / s2.clamp(min=LEAST) > LARGEST)).sum())
