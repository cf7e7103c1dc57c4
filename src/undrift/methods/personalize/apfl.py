"""APFL: a personal model beside the global one, and a learned share of it.

Deng et al.: Adaptive Personalized Federated Learning, 2020.

Each client trains w (the global model, averaged as usual) and v (its own), and learns how much of v to use:

    g_α = ⟨v − w, α ∇v + (1 − α) ∇w⟩ + 0.02 α,    α ← clip(α − η g_α, 0, 1)

`pfllib` (the code the FLIU paper used): v steps on its own loss, α moves with every batch, after the round
v ← α v + (1 − α) w, and the client uses v. `official` (the authors' FedTorch): w steps first, then v steps on the loss of
the mixed output α o_v + (1 − α) o_w with o_w after that step, and both gradients in g_α are those of the mixed loss. α
moves once per round, on the first batch, and the client uses the mixed output (`adaptive=false`, FedTorch's own default,
keeps α fixed). FedTorch's second pass through w also moves w's BatchNorm statistics a second time. Here a copy of w makes
that pass, so the global model is FedAvg's. PFLlib starts at α = 1 and drops the last batch, so that a small client never
trains. This part does neither.
v is trained on the plain loss, whatever the other parts do to the global model. If the slope is not finite, α stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Personalize, Range, Tree


@dataclass(frozen=True)
class Apfl(Personalize):
    variant: Literal["pfllib", "official"] = "pfllib"
    alpha0: Annotated[float, Range(least=0, most=1)] = 0.5
    adaptive: bool = True

    needs: ClassVar = ("gradient",)

    @property
    def lockstep(self) -> bool:  # type: ignore[override]
        """The official variant passes a batch through both networks at once."""
        return self.variant == "pfllib"

    def init_client(self, job: Job) -> Tree:
        return {"v": job.initial, "alpha": float(self.alpha0)}

    def before_start(self, job: Job, own: Any, server_message: Message) -> dict[str, Any]:
        alpha = torch.tensor(own["alpha"], device=job.received.device)
        scratch = {"alpha": alpha, "moves": self.adaptive}
        if self.variant == "pfllib":
            return {**scratch, "v": job.second_model(own["v"])}
        # The shadow is w after its step, to pass the batch through once more.
        return {**scratch, "v": job.twin(own["v"]), "shadow": job.twin(job.received)}

    def after_step(self, batch: Batch, job: Job, scratch: dict[str, Any]) -> None:
        v, alpha = scratch["v"], scratch["alpha"]
        if self.variant == "official":
            slopes = self.mixed_step(batch, scratch)
        else:
            slopes = v.learn(batch), batch.gradient
        if scratch["moves"]:
            slope = torch.dot(v.P - batch.P, alpha * slopes[0] + (1 - alpha) * slopes[1]) + 0.02 * alpha
            scratch["alpha"] = torch.where(torch.isfinite(slope), (alpha - job.lr * slope).clamp(0.0, 1.0), alpha)
            scratch["moves"] = self.variant == "pfllib"

    def mixed_step(self, batch: Batch, scratch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """v's step on the mixed output. Returns the mixed loss's slopes along v and, where α moves, along w."""
        twin, shadow, alpha = scratch["v"], scratch["shadow"], scratch["alpha"]
        shadow.P.copy_(batch.P)
        with torch.set_grad_enabled(scratch["moves"]):
            of_w = shadow(batch.x)
        of_v = twin(batch.x)
        if scratch["moves"]:
            mixed = shadow.loss(alpha * of_v.detach() + (1 - alpha) * of_w, batch.y)
            shadow.flat.gradient(mixed, into=shadow.G)
        along_v = twin.step(twin.loss(alpha * of_v + (1 - alpha) * of_w.detach(), batch.y))
        return along_v, shadow.G if scratch["moves"] else None

    def after_training(self, job: Job, scratch: dict[str, Any], own: Any) -> tuple[Tree, Message]:
        v, alpha = scratch["v"].vector, scratch["alpha"].item()
        job.note("alpha", alpha)
        if self.variant == "pfllib":
            v = torch.where(v == job.trained, v, torch.lerp(job.trained, v, alpha))  # a buffer may hold ±inf by design
        return {"v": v, "alpha": alpha}, {}

    def personal_models(self, job: Job, own: Any, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        if self.variant == "pfllib":
            return [(1.0, own["v"])]
        return [(own["alpha"], own["v"]), (1 - own["alpha"], trained)]
