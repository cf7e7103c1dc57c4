"""FLOOD's client half (ASW): samples that the model is unsure of get a larger weight.

Ling et al.: Adaptive Dual-Weighting Framework for Federated Learning via Out-of-Distribution Detection.

    s_i = S(x_i) from the logits of the forward pass that trains;   τ = the ⌊q(B−1)⌋-th smallest (0-based)
    w_i = λ_t if s_i < τ else 1;   loss = (1/B) Σ w_i ℓ_i        no gradient through s, τ or w
    λ_t = max(floor, schedule(t − 1)), 1 at t = 0; the schedule grows from 0 to 2a within T rounds

The trap: the mean divides by B, not by Σw, so λ multiplies the *learning rate*: at a = 200 by up to 272. A claim about
sample weighting needs the controls: `normalised` (weights divided by their batch mean), `mean` (the batch mean for all
samples, no selection), `random` (as many samples, drawn at random) and `filter` (confident samples are dropped, the
others keep λ; only in rounds in which λ ≠ 1). If `mean` performs as well, the effect is the learning rate.

The authors' code has κ = 5 and α = 10 *per round* in the exponential and logistic schedules, which makes them steps.
Here they are 5/T and 10/T (`rate` sets them). Their code also has a = 50 where the paper has 200. The starts early,
middle, late are t₀ = 0, R/4, R/2: `shift` moves the whole growth by t₀, `stop` lets it run from t₀ to T.
`scored_by=received` scores the whole local set once with the received model, with one τ.
The score of a sequence or a mask is the mean over its tokens or pixels. A task without class logits is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Plan, Problem, Range, Sampling, Tree
from undrift.methods import scores


@dataclass
class RoundScores:
    """The scores and selections of one client in one round, kept as tensors until the round ends."""

    level: float  # λ_t
    draw: torch.Generator
    fixed: torch.Tensor | None = None  # which samples are weighted, if the received model decides
    scores: list[torch.Tensor] = field(default_factory=list)
    taus: list[torch.Tensor] = field(default_factory=list)
    below: list[torch.Tensor] = field(default_factory=list)
    finite: list[torch.Tensor] = field(default_factory=list)
    order: torch.Tensor | None = None  # of the batch, where the control is random
    guarded: int = 0  # scores that a guard of ASH-S changed


@dataclass(frozen=True)
class Flood(Sampling):
    q: Annotated[float, Range(least=0, most=1)] = 0.7
    a: Annotated[float, Range(above=0)] = 5.0
    T: Annotated[int | None, Range(above=0)] = None  # half of the run
    floor: Annotated[float, Range(least=0)] = 1.0
    schedule: Literal["cosine", "linear", "quadratic", "exponential", "logistic"] = "cosine"
    start: Literal["early", "middle", "late"] = "early"
    start_form: Literal["shift", "stop"] = "shift"
    score: str = "energy"
    scored_by: Literal["local", "received"] = "local"
    control: Literal["none", "normalised", "mean", "random", "filter"] = "none"
    rate: Annotated[float | None, Range(above=0)] = None  # κ or α per round; 5/T and 10/T

    lockstep: ClassVar = True

    def validate(self) -> None:
        scores.named(self.score)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return scores.needs(self.score)

    # ---- how much ----------------------------------------------------------------------------------------------

    def resolve(self, plan: Plan) -> Flood:
        return replace(self, T=plan.share(1 / 2) if self.T is None else self.T)

    def level(self, round: int, plan: Plan) -> float:
        """λ_t."""
        assert self.T is not None
        onset = self.onset(plan)
        growth = self.T if self.start_form == "shift" else self.T - onset
        since = round - 1 - onset
        return 1.0 if since < 0 else max(float(self.floor), 2 * self.a * self.progress(since, growth))

    def onset(self, plan: Plan) -> int:
        """t₀."""
        return {"early": 0, "middle": plan.share(1 / 4), "late": plan.share(1 / 2)}[self.start]

    def progress(self, t: int, T: int) -> float:
        """The schedule from 0 to 1. A growth of no rounds is a jump."""
        if t >= T:
            return 1.0
        if self.schedule == "cosine":
            return (1 - math.cos(math.pi * t / T)) / 2
        if self.schedule == "exponential":
            rate = self.rate or 5 / T
            return math.expm1(-rate * t) / math.expm1(-rate * T)
        if self.schedule == "logistic":
            rate = self.rate or 10 / T
            low, high = sigmoid(-rate * T / 2), sigmoid(rate * T / 2)
            return (sigmoid(rate * (t - T / 2)) - low) / (high - low)
        return t / T if self.schedule == "linear" else (t / T) ** 2

    def check(self, plan: Plan) -> Iterable[Problem]:
        assert self.T is not None
        levels = [self.level(round, plan) for round in range(plan.rounds)]
        if max(levels, default=1.0) <= 1:
            yield Problem(
                "warning",
                f"flood never lifts a weight above 1 in {plan.rounds} rounds (T = {self.T}, "
                f"a = {self.a}, start {self.start}); lengthen the run, shorten T or raise a",
            )
        if self.start_form == "stop" and self.onset(plan) >= self.T:
            yield Problem(
                "warning",
                f"flood's growth from its {self.start} start to T = {self.T} lasts no round, so "
                "λ jumps to 2a; raise T or use start_form=shift",
            )
        share = rank(self.q, plan.batch) / plan.batch
        rest = 0 if self.control == "filter" else 1 - share
        steps = [plan.rate(round) * (share * level + rest) for round, level in enumerate(levels)]
        if self.control != "normalised" and max(steps, default=0.0) > 1:
            yield Problem(
                "warning",
                f"flood multiplies the rate: lr times mean weight reaches {max(steps):.3g} in "
                f"round {steps.index(max(steps))}, above 1, and will probably diverge; lower a or lr, or "
                "let the rate decay",
            )

    # ---- which samples ------------------------------------------------------------------------------------------

    def passes(self, round: int) -> tuple[str, ...]:
        return ("received",) if self.scored_by == "received" else ()

    def before_training(self, job: Job, state: Any, server_message: Message) -> RoundScores:
        scratch = RoundScores(self.level(job.round, job.plan), job.stream("mask"))
        if self.scored_by == "received":
            scratch.fixed = self.unsure(scores.of_pass(self.score, job, "received"), scratch)
        return scratch

    def sample_weights(self, batch: Batch, job: Job, scratch: RoundScores) -> torch.Tensor:
        if scratch.fixed is not None:
            below = scratch.fixed[batch.index]
        else:
            with torch.no_grad():
                s = scores.of_logits(self.score, job.plan.task, batch.logits, batch.y, batch.features, batch.head)
                below = self.unsure(s, None if batch.again else scratch)
                if not batch.again:
                    scratch.guarded += scores.guarded_in(self.score, batch.features)
        if not batch.again:
            scratch.below.append(below)
        if self.control == "random":
            if not batch.again:
                scratch.order = torch.randperm(len(below), generator=scratch.draw)
            assert scratch.order is not None
            below = below[scratch.order]
        weights = torch.where(below, scratch.level, 1.0)
        if self.control == "normalised":
            return weights / weights.mean().clamp(min=1e-12)
        if self.control == "mean":
            return weights.mean().expand_as(weights)
        if self.control == "filter" and scratch.level != 1.0:
            return torch.where(below | ~below.any(), weights, 0.0)
        return weights

    def stack_weights(
        self, logits: torch.Tensor, counts: Sequence[int], scratches: Sequence[RoundScores]
    ) -> torch.Tensor | None:
        if self.control != "none" or self.scored_by != "local" or "features" in self.needs:
            return None
        shape = logits.shape[:2]
        s = scores.SCORES[self.score](logits.flatten(0, 1)).view(shape)
        size = torch.tensor(counts, device=s.device).unsqueeze(1)
        real = torch.arange(shape[1], device=s.device) < size
        finite = s.isfinite()
        least = s.nan_to_num(math.inf, math.inf, math.inf).masked_fill(~real, math.inf).amin(1, keepdim=True)
        s = s.where(finite, least).masked_fill(~real, math.inf)
        ranks = torch.tensor([[rank(self.q, count)] for count in counts], device=s.device)
        tau = s.sort(1).values.gather(1, ranks)
        below = s < tau
        levels = torch.tensor([[scratch.level] for scratch in scratches], device=s.device)
        for scratch, count, *kept in zip(
            scratches, counts, finite.unbind(), s.unbind(), below.unbind(), tau.squeeze(1).unbind()
        ):
            scratch.finite.append(kept[0][:count])
            scratch.scores.append(kept[1][:count])
            scratch.below.append(kept[2][:count])
            scratch.taus.append(kept[3])
        return torch.where(below, levels, 1.0)

    def unsure(self, s: torch.Tensor, scratch: RoundScores | None) -> torch.Tensor:
        """Which samples lie strictly below τ. A score that is not finite counts as the smallest. Noted in `scratch`."""
        finite = s.isfinite()
        least = s.nan_to_num(math.inf, math.inf, math.inf).amin()
        s = s.where(finite, least)
        tau = s.kthvalue(rank(self.q, len(s)) + 1).values
        if scratch is not None:
            scratch.finite.append(finite)
            scratch.scores.append(s)
            scratch.taus.append(tau)
        return s < tau

    def after_training(self, job: Job, scratch: RoundScores, state: Any) -> tuple[Tree, Message]:
        values = torch.cat(scratch.scores).double()
        quartiles = values.sort().values[[(len(values) - 1) * i // 4 for i in range(5)]]
        job.note("lambda", scratch.level)
        job.note("tau", torch.stack(scratch.taus).double().mean())
        job.note("weighted", torch.cat(scratch.below).double().mean())
        job.note("scores", quartiles)
        if scratch.guarded:
            job.note("guarded", scratch.guarded)
        if nonfinite := int((~torch.cat(scratch.finite)).sum()):
            job.note("nonfinite", nonfinite)
        return state, {}


def rank(q: float, size: int) -> int:
    """How many of `size` distinct scores lie below τ: ⌊q(B−1)⌋ in Python floats (float32 differs at B = 91, 171 …)."""
    return math.floor(q * (size - 1) + 1e-9)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, x))))
