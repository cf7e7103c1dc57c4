"""FedSAM: local steps along the gradient at the worst point nearby, towards flat minima.

Qu et al.: Generalized Federated Learning via Sharpness Aware Minimization, ICML 2022. The step is SAM's (Foret et al.:
Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021).

    ε = ρ g(P) / ‖g(P)‖,   each step uses g(P + ε)

g is the gradient of the whole composition: what other parts do to logits, weights, loss and gradient counts at both
points. `adaptive` is FedASAM (Caldarola et al.: Improving Generalization in Federated Learning by Seeking Flat Minima,
ECCV 2022): with T = |P| + η, elementwise, ε = ρ T² g / ‖T g‖, which does not depend on the scale of a layer.

The trap: the gradient must be taken through the method's own loss. A second network with the plain loss looks right, and
every other part silently vanishes. Both points use the same samples and the same dropout masks, and BatchNorm statistics
come from P alone; common SAM code draws new masks and lets both passes move the statistics. FedASAM's code
uses T for weights only; here it is used for all parameters. ρ = 0 is FedAvg bit for bit. MoFedSAM, with the server's
momentum in the local step, is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.parts import Batch, Job, Objective, Range

ZERO = 1e-12  # at a gradient of zero there is no direction


@dataclass(frozen=True)
class FedSAM(Objective):
    rho: Annotated[float, Range(least=0)] = 0.05
    adaptive: bool = False
    eta: Annotated[float, Range(least=0)] = 0.01

    needs: ClassVar = ("gradient_at",)

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: Any) -> None:
        scale = P.abs() + self.eta if self.adaptive else torch.ones_like(P)
        ahead = G * scale
        length = torch.linalg.vector_norm(ahead).clamp(min=ZERO)
        G.copy_(batch.gradient_at(P + self.rho / length * scale * ahead))
