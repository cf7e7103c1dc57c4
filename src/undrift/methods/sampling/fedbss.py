"""FedBSS: a curriculum inside every local round, from unbiased to biased samples (FedBSS, paper 001).

From round T₁ on, once, with the received model in eval mode:

    u_i = 1 − (max_c p_c − min_c p_c);   S_mid = ℓ of the most uncertain sample;   U = {ℓ ≤ S_mid}, V = the rest
    epoch e = 1 … E trains on U and the ⌊α_e |V|⌋ of V with the smallest loss,   α_e = (1 − cos(π e/E))/2

so the last epoch takes everything (and with E = 1 the only one does). Ties of u: the smallest loss. S_mid rests on one
sample, so |V|/n scatters widely; it is noted. The traps: without 1e-9 the count at e = E/2 comes out one short; U may
be a single sample, so it is enlarged to min(n, B) and that is noted. There is no public code; the mean is uniform.

Other boundaries, since the paper claims that fixed ones do not do: `ratio` (the share `level` with the smallest loss
is U), `loss` (ℓ ≤ `level`), `top` (the median loss of the `level` most uncertain). Pacing `linear` (e/E) and `filter`
(U only) are the paper's ablations. Controls, with the same counts: `order=random` (one random order per round) and
`order=matched` (a fresh random subset each epoch: FedAvg with as many steps).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from undrift.contract.parts import Job, Plan, Problem, Sampling
from undrift.core.errors import BadRequest

LEVELS = {"uncertainty": None, "ratio": 0.7, "loss": 1.0, "top": 10.0}
SURVEYED = 16  # samples of the survey that are noted per client and round
WORDS = {
    "boundary": tuple(LEVELS),
    "pacing": ("cosine", "linear", "filter"),
    "order": ("loss", "random", "matched"),
}


@dataclass(frozen=True)
class FedBSS(Sampling):
    T1: int | None = None  # warm-up, a quarter of the run
    boundary: Literal["uncertainty", "ratio", "loss", "top"] = "uncertainty"
    level: float | None = None  # of the other boundaries: 0.7 (ratio), 1.0 (loss), 10 (top)
    pacing: Literal["cosine", "linear", "filter"] = "cosine"
    order: Literal["loss", "random", "matched"] = "loss"

    def __post_init__(self) -> None:
        if self.T1 is not None and self.T1 < 0:
            raise BadRequest(f"fedbss: T1 is {self.T1}; it must be a number of rounds of at least 0")
        for name, known in WORDS.items():
            if (value := getattr(self, name)) not in known:
                raise BadRequest(f"fedbss: {name} is {value!r}; it must be {', '.join(known[:-1])} or {known[-1]}")
        level = self.level
        if level is not None and self.boundary == "ratio" and not 0 <= level <= 1:
            raise BadRequest(f"fedbss: level is {level}; as a ratio it must be between 0 and 1")
        if level is not None and self.boundary == "top" and not (level >= 1 and level == int(level)):
            raise BadRequest(f"fedbss: level is {level}; as a number of samples it must be whole and at least 1")
        if level is not None and self.boundary == "loss" and not math.isfinite(level):
            raise BadRequest(f"fedbss: level is {level}; as a loss it must be finite")

    def resolve(self, plan: Plan) -> FedBSS:
        return replace(
            self,
            T1=plan.share(1 / 4) if self.T1 is None else self.T1,
            level=LEVELS[self.boundary] if self.level is None else self.level,
        )

    def check(self, plan: Plan) -> Iterable[Problem]:
        assert self.T1 is not None
        if plan.rounds <= self.T1:
            yield Problem(
                "warning",
                f"fedbss warms up for T1 = {self.T1} rounds and the run has {plan.rounds}: it is "
                "plain training; lower T1 or lengthen the run",
            )
        if plan.epochs == 1 and self.pacing != "filter":
            yield Problem(
                "warning",
                "fedbss with one local epoch takes every sample in it: plain training with a survey; raise --epochs",
            )

    def before_training(
        self, job: Job, state: Any, server_message: dict[str, Any]
    ) -> tuple[torch.Tensor, int, torch.Generator] | None:
        """(all positions, easiest first; |U|; a stream), or None in the warm-up."""
        assert self.T1 is not None
        if job.round < self.T1:
            return None
        survey = job.scored("received")
        loss = torch.where(torch.isfinite(survey.loss), survey.loss.double(), math.inf)
        p = survey.logits.double().softmax(1)
        u = torch.where(torch.isfinite(loss), 1 - (p.amax(1) - p.amin(1)), -math.inf)
        easiest = loss.argsort(stable=True)
        unbiased = self.unbiased(loss, u, easiest, job)
        if unbiased < (least := min(job.n, job.plan.batch)):
            job.note("enlarged_from", unbiased)
            unbiased = least
        job.note("biased", (job.n - unbiased) / job.n)
        job.note("biased_labels", job.labels[easiest[unbiased:]].bincount(minlength=job.plan.classes))
        job.note("survey", some_of(loss, u, easiest))
        draw = job.stream("order")
        return (easiest if self.order == "loss" else torch.randperm(job.n, generator=draw)), unbiased, draw

    def unbiased(self, loss: torch.Tensor, u: torch.Tensor, easiest: torch.Tensor, job: Job) -> int:
        """|U|, before it is enlarged."""
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

    def epoch_indices(
        self, job: Job, course: tuple[torch.Tensor, int, torch.Generator] | None, epoch: int
    ) -> torch.Tensor:
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


def some_of(loss: torch.Tensor, u: torch.Tensor, easiest: torch.Tensor) -> dict[str, list[float]]:
    """Loss against uncertainty, for the record: a few samples, evenly spaced from the easiest to the hardest."""
    sound = easiest[torch.isfinite(loss[easiest])]
    few = sound[torch.linspace(0, max(len(sound) - 1, 0), min(SURVEYED, len(sound))).round().long()]
    return {"loss": [round(v, 4) for v in loss[few].tolist()], "uncertainty": [round(v, 4) for v in u[few].tolist()]}
