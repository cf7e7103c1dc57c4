"""FLOOD's server half (DAC): clients are weighted by size and by confidence.

Ling et al.: Adaptive Dual-Weighting Framework for Federated Learning via Out-of-Distribution Detection.

    φ_k = mean of S over the client's training data under its trained model, in eval mode
    p = NORM(NORM(n) + α NORM(φ)),   NORM(v) = v / Σ v

With equal φ this is p_k = (n-share + α/m)/(1 + α): a mix of size and uniform weights, so that mix (`phi=constant`),
permuted and reversed φ are its controls.

The trap: φ/Σφ of negative scores is reversed (always with GEN), and mixed signs explode. `norm_phi=auto` divides by the
sum if all φ are positive. Otherwise it first adds the score's own fixed bound (GEN) or takes softplus (the others). It
never subtracts the cohort's minimum, which would turn a spread of 1e-6 into shares from 0 to 0.2. The round notes when it
did so. `sum` is the released code: weights may then be negative, and the model moves away from such a client. That code also
scores *augmented* inputs. Here they are not augmented. The score of a sequence or a mask is the mean over its tokens or
pixels. A task without class logits is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Number
from undrift.contract.parts import Job, Range, Replies, Server, Tree, Weighting
from undrift.methods import scores


@dataclass(frozen=True)
class Flood(Weighting):
    alpha: Annotated[float, Range(least=0)] = 0.5
    norm_phi: Literal["auto", "sum"] = "auto"
    score: str = "energy"
    phi: Literal["measured", "constant", "permuted", "reversed"] = "measured"

    @property
    def uplink(self) -> Declaration:
        return {"phi": scores.RANGES.get(self.score, Number())}

    def validate(self) -> None:
        scores.named(self.score)

    @property
    def signed(self) -> bool:  # type: ignore[override]
        return self.norm_phi == "sum"

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return scores.needs(self.score)

    def passes(self, round: int) -> tuple[str, ...]:
        return ("trained",)

    def after_training(self, job: Job, scratch: Any, state: Any) -> tuple[Tree, Message]:
        values = scores.of_pass(self.score, job, "trained")
        phi = values[torch.isfinite(values)].double().mean().item()
        job.note("phi", phi)
        return state, {"phi": phi}

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        n = torch.tensor(replies.n, dtype=torch.float64)
        phi = torch.tensor([message["phi"] for message in replies.client_messages], dtype=torch.float64)
        phi = self.controlled(phi, replies, server)
        if self.norm_phi == "auto" and not (phi > 0).all():
            server.note("guarded", int((phi <= 0).sum()))  # clients whose φ the plain share would reverse
        return n / n.sum() + self.alpha * self.shares(phi, server.plan.classes)

    def controlled(self, phi: torch.Tensor, replies: Replies, server: Server) -> torch.Tensor:
        if self.phi == "constant":
            return torch.ones_like(phi)
        if self.phi == "reversed":
            return phi.max() + phi.min() - phi
        if self.phi == "permuted":
            by_id = torch.tensor(replies.ids).argsort()
            drawn = torch.randperm(len(phi), generator=server.stream("permuted"))
            return phi.scatter(0, by_id, phi[by_id][drawn])
        return phi

    def shares(self, phi: torch.Tensor, classes: int) -> torch.Tensor:
        """NORM(φ), with the guards."""
        if self.norm_phi == "auto" and not (phi > 0).all():
            phi = phi - scores.gen_floor(classes) if self.score == "gen" else F.softplus(phi)
        total = phi.sum()
        return phi / total if total != 0 else torch.full_like(phi, 1 / len(phi))
