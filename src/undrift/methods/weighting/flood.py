"""FLOOD's server half, DAC: weigh clients by size and by confidence (FLOOD, paper 000).

    φ_k = mean of S over the client's training data under its trained model, in eval mode
    p = NORM(NORM(n) + α NORM(φ)),   NORM(v) = v / Σ v

With equal φ this is p_k = (n-share + α/m)/(1 + α): a mix of size and uniform weights, so that mix (`phi=constant`),
permuted and reversed φ are its controls.

The trap: φ/Σφ of negative scores is reversed (always with GEN), and mixed signs explode. `norm_phi=auto` divides by the
sum where all φ are positive, and otherwise first adds the score's own fixed bound (GEN) or takes softplus (the others);
never the cohort's minimum, which would turn a spread of 1e-6 into shares from 0 to 0.2. `sum` is the released code,
which also scores *augmented* inputs; here they are not augmented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.nn import functional as F

from undrift.contract.declare import Declaration, Number
from undrift.contract.parts import Job, Replies, Server, Tree, Weighting
from undrift.core.errors import BadRequest
from undrift.methods import scores

PHI = ("measured", "constant", "permuted", "reversed")


@dataclass(frozen=True)
class Flood(Weighting):
    alpha: float = 0.5
    norm_phi: Literal["auto", "sum"] = "auto"
    score: str = "energy"
    phi: Literal["measured", "constant", "permuted", "reversed"] = "measured"

    uplink: ClassVar[Declaration] = {"phi": Number()}

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise BadRequest(f"weighting.flood: alpha is {self.alpha}; it must be a number of at least 0")
        if self.norm_phi not in ("auto", "sum"):
            raise BadRequest(f"weighting.flood: norm_phi is {self.norm_phi!r}; it must be auto or sum")
        if self.phi not in PHI:
            raise BadRequest(f"weighting.flood: phi is {self.phi!r}; it must be {', '.join(PHI[:-1])} or {PHI[-1]}")
        scores.named(self.score)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return scores.needs(self.score)

    def after_training(self, job: Job, scratch: Any, state: Any) -> tuple[Tree, dict[str, Any]]:
        values = scores.of_pass(self.score, job, "trained")
        phi = values[torch.isfinite(values)].double().mean().item()
        job.note("phi", phi)
        return state, {"phi": phi}

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        n = torch.tensor(replies.n, dtype=torch.float64)
        phi = torch.tensor([message["phi"] for message in replies.client_messages], dtype=torch.float64)
        return n / n.sum() + self.alpha * self.shares(self.controlled(phi, replies, server), server.plan.classes)

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
