"""FedDecorr: features are kept uncorrelated, against dimensional collapse.

Shi et al.: Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning, ICLR 2023.

    Z = features, every dimension standardised over the batch        K = ZᵀZ
    loss = CE + β · mean_{i≠j}(K_ij²) / B

The trap: K is not divided by B − 1, so the term is (B−1)²/B times the mean squared *correlation* of the paper (62.0 at
B = 64). The released scale is the default, as other code copies it. `normalise=True` is the paper's. Batches of fewer
than four samples get no penalty: their correlations are near ±1 by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.parts import Batch, Job, Objective, Range

FEWEST = 4


@dataclass(frozen=True)
class FedDecorr(Objective):
    beta: Annotated[float, Range(least=0)] = 0.1
    normalise: bool = False

    lockstep: ClassVar = True
    needs: ClassVar = ("features",)

    def loss(self, batch: Batch, job: Job, scratch: Any) -> torch.Tensor:
        f = batch.features
        assert f is not None
        B = len(f)
        if B < FEWEST:
            return f.new_zeros(())
        return self.beta * off_diagonal(f) / ((B - 1) ** 2 if self.normalise else B)


def off_diagonal(f: torch.Tensor) -> torch.Tensor:
    """mean_{i≠j}(K_ij²). ZᵀZ and ZZᵀ have the same sum of squares, so the smaller of the two is computed."""
    B, D = f.shape
    Z = (f - f.mean(0)) / (f.var(0) + 1e-8).sqrt()
    K = Z @ Z.T if B < D else Z.T @ Z
    return (K.square().sum() - Z.square().sum(0).square().sum()) / max(D * (D - 1), 1)
