"""FedBSS: a curriculum inside every local round, from unbiased to biased samples.

Xu et al.: Federated Learning with Sample-level Client Drift Mitigation.

From round T₁ on, once per round, with the received model in eval mode:

    u_i = 1 − (max_c p_c − min_c p_c);   S_mid = ℓ of the most uncertain sample;   U = {ℓ ≤ S_mid}, V = the rest
    epoch e = 1 … E trains on U and the ⌊α_e |V|⌋ of V with the smallest loss,   α_e = (1 − cos(π e/E))/2

so the last epoch takes all samples (and with E = 1 the only one does). Ties of u: the smallest loss. S_mid depends on
one sample, so |V|/n varies widely. It is noted. The traps: without 1e-9 the count at e = E/2 is one too small. U may be
a single sample, so it is enlarged to min(n, B), which is noted. There is no public code. The mean is uniform.

Other boundaries, since the paper claims that fixed ones do not work: `ratio` (the share `level` with the smallest loss
is U), `loss` (ℓ ≤ `level`), `top` (the median loss of the `level` most uncertain). Pacing `linear` (e/E) and `filter`
(U only) are the paper's ablations. Controls, with the same counts: `order=random` (one random order per round) and
`order=matched` (a new random subset each epoch: FedAvg with as many steps).

`survey_of=3` notes every sample of client 3 instead of a few, and which positions are biased: docs/evaluation.md says how to
read which samples change sides between rounds.

The uncertainty of a sequence or a mask is the mean over its tokens or pixels. A task without class logits is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Job, Plan, Problem, Range, Sampling
from undrift.core.errors import BadRequest

LEVELS = {"uncertainty": None, "ratio": 0.7, "loss": 1.0, "top": 10.0}
SURVEYED = 16  # samples of the survey that are noted per client and round
Course = tuple[torch.Tensor, int, torch.Generator]  # all positions, easiest first; |U|; a stream


@dataclass(frozen=True)
class FedBSS(Sampling):
    T1: Annotated[int | None, Range(least=0)] = None  # warm-up, a quarter of the run
    boundary: Literal["uncertainty", "ratio", "loss", "top"] = "uncertainty"
    level: float | None = None  # of the other boundaries: 0.7 (ratio), 1.0 (loss), 10 (top)
    pacing: Literal["cosine", "linear", "filter"] = "cosine"
    order: Literal["loss", "random", "matched"] = "loss"
    survey_of: Annotated[int | None, Range(least=0)] = None  # the client whose samples are all noted

    lockstep: ClassVar = True
    needs: ClassVar = ("class_logits",)

    def validate(self) -> None:
        level = self.level
        if level is None:
            return
        if not math.isfinite(level):
            raise BadRequest(f"fedbss: level must be finite, not {level}")
        if self.boundary == "ratio" and not 0 <= level <= 1:
            raise BadRequest(f"fedbss: level must be between 0 and 1 with boundary=ratio, not {level}")
        if self.boundary == "top" and not (level >= 1 and level == int(level)):
            raise BadRequest(f"fedbss: level must be a whole number of at least 1 with boundary=top, not {level}")

    def resolve(self, plan: Plan) -> FedBSS:
        return replace(
            self,
            T1=plan.share(1 / 4) if self.T1 is None else self.T1,
            level=LEVELS[self.boundary] if self.level is None else self.level,
        )

    def check(self, plan: Plan) -> Iterable[Problem]:
        assert self.T1 is not None
        if self.survey_of is not None and self.survey_of >= plan.clients:
            yield Problem(
                "error",
                f"fedbss(survey_of={self.survey_of}) names no client; clients are numbered 0 to {plan.clients - 1}",
            )
        if plan.rounds <= self.T1:
            yield Problem(
                "warning",
                f"fedbss warms up for T1 = {self.T1} rounds and the run has {plan.rounds}: it is "
                "plain training; lower T1 or lengthen the run",
            )
        if plan.epochs == 1 and self.pacing != "filter":
            yield Problem(
                "warning",
                "fedbss with one local epoch trains on every sample: plain training with a survey; raise --epochs",
            )

    def passes(self, round: int) -> tuple[str, ...]:
        return ("received",) if self.T1 is not None and round >= self.T1 else ()

    def before_training(self, job: Job, state: Any, server_message: Message) -> Course | None:
        """The course of this round, None in the warm-up."""
        assert self.T1 is not None
        if job.round < self.T1:
            return None
        survey = job.scored("received")
        loss = torch.where(torch.isfinite(survey.loss), survey.loss.double(), math.inf)
        task = job.plan.task
        p = task.class_logits(survey.logits).double().softmax(-1)
        away = task.per_sample(1 - (p.amax(-1) - p.amin(-1)), job.targets)
        u = torch.where(torch.isfinite(loss), away, -math.inf)
        easiest = loss.argsort(stable=True)
        unbiased = self.unbiased(loss, u, easiest, job)
        if unbiased < (least := min(job.n, job.plan.batch)):
            job.note("enlarged_from", unbiased)
            unbiased = least
        job.note("biased", (job.n - unbiased) / job.n)
        if "labels" in task.provides:
            job.note("biased_labels", job.labels[easiest[unbiased:]].bincount(minlength=job.plan.classes))
        whole = job.client == self.survey_of
        job.note("survey", survey_note(loss, u, easiest, job.n if whole else SURVEYED))
        for name, mean in regimes(u[easiest], unbiased).items():
            job.note(name, mean)
        if whole:
            job.note("biased_samples", easiest[unbiased:].sort().values)
        draw = job.stream("order")
        return (easiest if self.order == "loss" else torch.randperm(job.n, generator=draw)), unbiased, draw

    def unbiased(self, loss: torch.Tensor, u: torch.Tensor, easiest: torch.Tensor, job: Job) -> int:
        """|U| before it is enlarged."""
        if self.boundary == "ratio":
            return math.floor((self.level or 0.0) * job.n + 1e-9)
        if self.boundary == "loss":
            middle = torch.tensor(self.level, dtype=loss.dtype, device=loss.device)
        else:
            among = 1 if self.boundary == "uncertainty" else int(self.level or 1)
            most = easiest[u[easiest].argsort(descending=True, stable=True)][:among]
            middle = loss[most].median()
        job.note("S_mid", middle if torch.isfinite(middle) else None)
        return int((loss <= middle).sum())

    def epoch_indices(self, job: Job, course: Course | None, epoch: int) -> torch.Tensor:
        if course is None:
            return torch.arange(job.n)
        order, unbiased, draw = course
        if self.order == "matched":
            order = torch.randperm(job.n, generator=draw)
        return order[: unbiased + math.floor(self.pace(epoch + 1, job.plan.epochs) * (job.n - unbiased) + 1e-9)]

    def pace(self, epoch: int, epochs: int) -> float:
        """α_e, with e from 1."""
        if self.pacing == "cosine":
            return (1 - math.cos(math.pi * epoch / epochs)) / 2
        return epoch / epochs if self.pacing == "linear" else 0.0


def survey_note(loss: torch.Tensor, u: torch.Tensor, easiest: torch.Tensor, most: int) -> dict[str, list[float]]:
    """Loss and uncertainty of at most so many samples, evenly spaced from the easiest to the hardest."""
    finite = easiest[torch.isfinite(loss[easiest])]
    few = finite[torch.linspace(0, max(len(finite) - 1, 0), min(most, len(finite))).round().long()]
    return {"loss": [round(v, 4) for v in loss[few].tolist()], "uncertainty": [round(v, 4) for v in u[few].tolist()]}


def regimes(u: torch.Tensor, boundary: int) -> dict[str, float]:
    """Mean uncertainty of the easiest tenth of the samples, of the tenth around the boundary and of the hardest tenth: the three
    stages of the paper's Figure 3b. `u` is in the order of the loss."""
    tenth = max(1, len(u) // 10)
    middle = min(max(boundary - 1 - tenth // 2, 0), len(u) - tenth)
    parts = {"easy": u[:tenth], "middle": u[middle : middle + tenth], "hard": u[-tenth:]}
    known = {name: part[torch.isfinite(part)] for name, part in parts.items()}
    return {f"uncertainty_{name}": round(part.mean().item(), 4) for name, part in known.items() if len(part)}
