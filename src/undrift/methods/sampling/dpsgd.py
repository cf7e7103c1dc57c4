"""Sample-level differential privacy at a client: DP-SGD.

Abadi et al.: Deep Learning with Differential Privacy, CCS 2016.

    each step   every sample takes part with probability q = B/n, by itself
                g = (Σ_i g_i · min(1, C/‖g_i‖) + N(0, z²C²)) / B        g_i: the gradient of sample i's own loss

What a client sends then says little about any one of its samples, whoever reads it: the server needs no trust. Every
client's ε (one sample more or less) follows from its own n, its steps so far and δ. It is kept at the client, as the note
`sample_epsilon`. The traps: g is divided by the expected batch B, not by how many samples came; a step without a sample is
a step of noise; BatchNorm mixes samples and is refused. Losses, sizes and metrics are not covered.

Parts that use the samples in another way (weights, logits by label counts, terms of the loss, an order of the samples)
would go round the noise, and are refused. A pull on the parameters (FedProx, SCAFFOLD, FedDyn) is fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Objective, Plan, Problem, Range, Sampling, Tree, defines
from undrift.core.streams import system_normal, system_stream
from undrift.methods.upload.accountant import Mechanism, epsilon, library

AROUND = ("sample_weights", "logits", "loss", "epoch_indices")


@dataclass(frozen=True)
class DpSgd(Sampling, Objective):
    noise: Annotated[float, Range(least=0)] = 1.0
    clip: Annotated[float, Range(above=0)] = 1.0
    delta: Annotated[float, Range(above=0, below=1)] = 1e-5

    axis: ClassVar = "sampling"  # its gradient comes first: other parts add to it
    needs: ClassVar = ("sample_gradients",)
    protects: ClassVar[bool] = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if self.noise:
            library()  # what counts ε is an extra: say so before round 0
        if plan.layout.n > plan.layout.nP:
            yield Problem("error", "dpsgd needs gradients of single samples, and BatchNorm mixes them; use norm=group")
        for part in plan.method.parts:
            if part is not self and (hook := next((hook for hook in AROUND if defines(part, hook)), "")):
                yield Problem(
                    "error", f"{part.name} uses the samples in {hook}, where dpsgd adds no noise; use one of the two"
                )
            if "gradient_at" in part.needs:
                yield Problem(
                    "error", f"{part.name} takes a second gradient of every batch, which dpsgd does not count"
                )
        if not plan.secret:
            yield Problem(
                "warning", "dpsgd's noise is seeded, so that the run can be repeated: seeded noise protects nobody"
            )
        yield Problem("warning", "dpsgd does not cover losses, numbers of samples and metrics of the clients")

    def init_client(self, job: Job) -> Tree:
        return {"steps": 0}

    def before_training(self, job: Job, state: Any, server_message: Message) -> dict[str, Any]:
        return {"noise": job.stream("noise"), "batches": job.stream("batches"), "nobody": []}

    def batch_indices(self, job: Job, scratch: dict[str, Any], epoch: int) -> Sequence[torch.Tensor]:
        steps, rate = max(1, round(job.n / job.plan.batch)), min(1.0, job.plan.batch / job.n)
        batches = []
        for _ in range(steps):
            if job.plan.secret:
                draws = torch.from_numpy(system_stream().random(job.n))
            else:
                draws = torch.rand(job.n, generator=scratch["batches"], dtype=torch.float64)
            chosen = (draws < rate).nonzero().flatten()
            if not len(chosen):  # a step needs a sample to run; its gradient is thrown away
                chosen = torch.zeros(1, dtype=torch.long)
                scratch["nobody"].append(chosen)
            batches.append(chosen)
        return batches

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: dict[str, Any]) -> None:
        rows = batch.sample_gradients()
        if any(batch.index is one for one in scratch["nobody"]):
            rows = rows[:0]
        lengths = rows.double().norm(dim=1)
        factors = (self.clip / lengths.clamp(min=1e-30)).clamp(max=1.0).to(rows.dtype)
        total = (rows * factors[:, None]).sum(0)
        if job.plan.secret:
            noise = system_normal(len(G))
        else:
            noise = torch.randn(len(G), generator=scratch["noise"], dtype=torch.float64)
        G.copy_((total + (self.noise * self.clip * noise).to(G)) / job.plan.batch)

    def after_training(self, job: Job, scratch: Any, state: Any) -> tuple[Tree, Message]:
        steps = state["steps"] + job.stats.steps + job.stats.skipped
        if self.noise:
            sampled = Mechanism(self.noise, "poisson", min(job.plan.batch, job.n), job.n)
            job.note("sample_epsilon", epsilon(sampled, self.delta, steps))
        return {"steps": steps}, {}
