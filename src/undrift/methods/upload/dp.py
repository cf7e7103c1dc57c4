"""Client-level differential privacy: clipped updates, and Gaussian noise on their sum.

McMahan et al.: Learning Differentially Private Recurrent Language Models, ICLR 2018. Andrew et al.: Differentially Private
Learning with Adaptive Clipping, NeurIPS 2021.

    client   u_k ← u_k · min(1, C/‖u_k‖) · min(n_k, cap)/cap      u_k: the update and the linear parts' vectors, as one vector
    server   Θ ← Θ + (Σ_k u_k + N(0, z²C²)) / (expected cohort)   the server clips again: a client may lie

The sum is divided by the *expected* cohort, never by how many answered, and a Poisson cohort without a client is a round
of pure noise. The trap: with fewer answers the noise stays and the step shrinks. z comes from `noise`, or is calibrated so
that ε after the planned rounds is `epsilon`. `clip="adaptive(γ, C₀)"` follows the γ-quantile of the lengths: clients send
whether they were below C, that count gets noise b = max(cohort/20, z) of its own, and the update's noise grows to
(z⁻² − (2b)⁻²)^(−½), so that both together cost what z alone would.

Noise is carried into the later hooks by one more reply whose vectors are the noise: every sum over the replies is noised
once. Parts whose server hooks use more than sums are not covered, and are refused unless `--uncovered accept`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message, Tree
from undrift.contract.declare import Along, Declaration, Number
from undrift.contract.parts import Job, Part, Plan, Problem, Range, Replies, Server, Upload, defines, server_sum
from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.methods.upload.accountant import Mechanism, calibrated, epsilons
from undrift.methods.upload.covered import covered_vectors, joint_norm, scaled, shrink

RATE = 0.2  # of the adaptive bound, as the paper has it
NOBODY = -1  # the client number of the reply that carries the noise
ALWAYS_UNCOVERED = (
    "training losses, numbers of samples and steps, and metrics of the clients, which the record holds",
    "other runs on the same data, a search for parameters included",
)


@dataclass(frozen=True)
class ClientDP(Upload):
    epsilon: Annotated[float | None, Range(above=0)] = None
    delta: Annotated[float, Range(above=0, below=1)] = 1e-5
    clip: float | str = 1.0
    noise: Annotated[float | None, Range(least=0)] = None
    cap: Annotated[int | None, Range(least=1)] = None  # of a client's samples; None: all clients weigh the same
    rounds: Annotated[int | None, Range(least=1)] = None  # that the noise was calibrated for; `resolve` fills it in

    protects: ClassVar[bool] = True
    fixes_weights: ClassVar[bool] = True
    keeps_empty_cohorts: ClassVar[bool] = True

    def validate(self) -> None:
        if self.epsilon is not None and self.noise is not None and self.rounds is None:
            raise BadRequest("dp takes epsilon or noise, not both: the one follows from the other; leave one out")
        quantile, clip = self.clipping
        if not (math.isfinite(clip) and clip > 0):
            raise BadRequest(f"dp: clip must be above 0, not {self.clip}")
        if quantile is not None and not 0 < quantile < 1:
            raise BadRequest(f"dp: the quantile of {self.clip} must be between 0 and 1")

    name: ClassVar = "dp"

    @property
    def clipping(self) -> tuple[float | None, float]:
        """The quantile that the bound follows (None: it is fixed), and the first bound."""
        return adaptive(self.clip) if isinstance(self.clip, str) else (None, float(self.clip))

    @property
    def uplink(self) -> Declaration:
        return {} if self.clipping[0] is None else {"below": Number(0, 1)}

    @property
    def downlink(self) -> Declaration:
        return {} if self.clipping[0] is None else {"clip": Number(low=0)}

    # ---- what it costs ---------------------------------------------------------------------------------------

    def resolve(self, plan: Plan) -> ClientDP:
        """With the noise that reaches epsilon in the planned rounds, or 1 where neither is given."""
        if self.noise is not None:
            return self
        if self.epsilon is None:
            return replace(self, noise=1.0)
        scheme = plan.cohorts or "all"
        noise = calibrated(self.epsilon, self.delta, plan.rounds, scheme, plan.cohort or plan.clients, plan.clients)
        return replace(self, noise=noise, rounds=plan.rounds)

    def mechanism(self, plan: Plan) -> Mechanism:
        assert self.noise is not None
        return Mechanism(self.noise, plan.cohorts or "all", plan.cohort or plan.clients, plan.clients)

    def privacy(self, plan: Plan, rounds: int) -> dict[str, Any]:
        mechanism = self.mechanism(plan)
        spent = epsilons(mechanism, self.delta, plan.rounds)[min(rounds, plan.rounds) - 1] if rounds else 0.0
        assumed = {
            "poisson": f"every client takes part with probability {mechanism.rate:.4g}, by itself, and cohorts stay secret",
            "fixed": f"cohorts of {mechanism.cohort:g} of {plan.clients} clients, drawn uniformly, stay secret",
            "all": "nothing about who takes part",
        }[mechanism.cohorts]
        return {
            "epsilon": spent if math.isfinite(spent) else None,
            "delta": self.delta,
            "relation": mechanism.relation,
            "assumed": assumed,
            "noise": self.noise,
            "seeded": not plan.secret,
            "uncovered": [*ALWAYS_UNCOVERED, *self.uncovered(plan)],
        }

    def uncovered(self, plan: Plan) -> list[str]:
        """What this method's parts send or use that the noise does not cover."""
        found = []
        for part in plan.method.parts:
            names = [name for name, kind in part.uplink.items() if not (part.linear and isinstance(kind, Along))]
            if names and part is not self and part.axis != "upload":
                found.append(f"{', '.join(names)} of {part.name}")
            elif uses_more_than_sums(part) and not names:
                found.append(f"what {part.name} makes of single replies")
        weighting = plan.method.one("weighting")
        if not weighting.fixed and not weighting.uplink:
            found.append(f"the weights of {weighting.name}")
        return found

    def check(self, plan: Plan) -> Iterable[Problem]:
        method = plan.method
        if self.rounds is not None and plan.rounds > self.rounds:
            yield Problem("error", f"dp's noise was calibrated for {self.rounds} rounds, and {plan.rounds} would exceed "
                                   f"epsilon = {self.epsilon:g}; start a run with --rounds {plan.rounds}")  # fmt: skip
        if method.on("upload")[-1] is not self and any(defines(p, "upload") for p in after(method.on("upload"), self)):
            yield Problem(
                "error", "dp must be the last upload part: what follows it would change an update that it clipped"
            )
        combine = method.one("combine")
        if not combine.averages:
            yield Problem(
                "error", f"dp releases a noised sum, and {combine.name} is no mean; use dp without {combine.name}"
            )
        if method.shows_models or defines(method.one("server"), "model_for"):
            yield Problem(
                "error",
                "dp covers one global model, and this method sends clients models of their own; use one of the two",
            )
        if plan.layout.n > plan.layout.nP:
            yield Problem("error", "dp would add noise to BatchNorm's statistics; use a network with norm=group")
        open_names = self.uncovered(plan)
        if open_names and plan.uncovered != "accept":
            yield Problem(
                "error", f"dp does not cover {'; '.join(open_names)}; add --uncovered accept to run all the same"
            )
        yield from self.warnings(plan)

    def warnings(self, plan: Plan) -> Iterator[Problem]:
        if self.delta > 1 / plan.clients:
            yield Problem("warning", f"delta = {self.delta:g} is above 1/N = {1 / plan.clients:.2g}: it allows to publish one "
                                     "client's data now and then")  # fmt: skip
        if self.noise == 0:
            yield Problem("warning", "dp with noise 0 protects nobody: ε is infinite")
        elif plan.secret:
            yield Problem(
                "warning", "noise and cohorts come from the operating system: this run cannot be repeated bit for bit"
            )
        else:
            yield Problem(
                "warning", "the noise is seeded, so that the run can be repeated: seeded noise protects nobody"
            )
        for name in (*ALWAYS_UNCOVERED, *self.uncovered(plan)):
            yield Problem("warning", f"ε does not cover {name}")

    # ---- the client ------------------------------------------------------------------------------------------

    def init_server(self, server: Server) -> Tree:
        quantile, clip = self.clipping
        return None if quantile is None else {"clip": clip}

    def broadcast(self, server: Server) -> Message:
        return {} if self.clipping[0] is None else {"clip": server.memory["clip"]}

    def before_training(self, job: Job, state: Any, server_message: Message) -> float:
        return float(server_message.get("clip", self.clipping[1]))

    def upload(
        self, job: Job, clip: float, state: Any, update: torch.Tensor, messages: dict[str, Message]
    ) -> tuple[Tree, torch.Tensor, dict[str, Message]]:
        norm = joint_norm(update, covered_vectors(job.plan, messages))
        weight = 1.0 if self.cap is None else min(job.n, self.cap) / self.cap
        factor = shrink(norm, clip) * weight
        job.note("norm", norm)
        update, messages = update * factor, scaled(job.plan, messages, factor)
        if self.uplink:
            messages = {**messages, self.key: {"below": float(norm <= clip)}}
        return state, update, messages

    # ---- the server ------------------------------------------------------------------------------------------

    def release(self, server: Server, mixed: torch.Tensor, replies: Replies) -> tuple[torch.Tensor, Replies]:
        plan, (quantile, clip) = server.plan, self.clipping
        assert self.noise is not None
        cohort, noise = plan.cohort or plan.clients, self.noise
        if quantile is not None:
            clip = server.memory["clip"]
            count_noise = max(cohort / 20, noise)
            noise = (noise**-2 - (2 * count_noise) ** -2) ** -0.5 if noise else 0.0
            below = sum(message["below"] - 0.5 for message in replies.client_messages)
            below = (below + server.noise("count", 1, count_noise if noise else 0.0).item()) / cohort + 0.5
            server.memory = {"clip": clip * math.exp(-RATE * (below - quantile))}
            server.note("clip", clip)
        answered = len(replies)
        replies = self.with_noise(server, self.clipped(plan, replies, clip), noise * clip)
        updates = [vector - sent for vector, sent in zip(replies.vectors, replies.sent)]
        if plan.method.one("weighting").fixed:
            total = server_sum(updates)
        else:  # weights that nobody covers, with leave: the mean times how many it is of
            total = answered * (mixed - server.vector) + updates[-1]
        statement = self.privacy(plan, server.round + 1)
        server.note("epsilon", statement.pop("epsilon"))
        if server.round == 0:
            server.note("privacy", json.dumps(statement))  # a text: nothing to draw
        return server.vector + total / self.divisor(plan, cohort), replies

    def divisor(self, plan: Plan, cohort: float) -> float:
        """The expected sum of the weights: the expected cohort times the mean weight, with the total size as public."""
        return cohort if self.cap is None else cohort * min(1.0, plan.total / (plan.clients * self.cap))

    def clipped(self, plan: Plan, replies: Replies, clip: float) -> Replies:
        """The replies, each within the bound whatever its client did."""
        vectors = list(replies.vectors)
        by_part: dict[str, Any] = {key: list(messages) for key, messages in replies.by_part.items()}
        for i, (vector, sent) in enumerate(zip(replies.vectors, replies.sent)):
            messages = {key: column[i] for key, column in by_part.items()}
            norm = joint_norm(vector - sent, covered_vectors(plan, messages))
            if norm > clip * (1 + 1e-6):
                factor = shrink(norm, clip)
                vectors[i] = sent + (vector - sent) * factor
                for key, message in scaled(plan, messages, factor).items():
                    by_part[key][i] = message
        return replace(replies, vectors=vectors, by_part=by_part)

    def with_noise(self, server: Server, replies: Replies, deviation: float) -> Replies:
        """One more reply, which nobody sent: its vectors are the noise on the sums."""
        plan = server.plan
        noise = server.noise("update", plan.layout.n, deviation).float()
        if plan.private is not None:
            noise = noise.masked_fill(plan.private, 0.0)
        by_part: dict[str, Any] = {}
        for part in plan.method.parts:
            extra: Message = {}
            if part.linear:
                for name, kind in part.uplink.items():
                    if isinstance(kind, Along):
                        drawn = server.noise(f"{part.key}/{name}", kind.size(plan), deviation).float()
                        extra[name] = (
                            drawn if plan.private is None else drawn.masked_fill(plan.private[: len(drawn)], 0.0)
                        )
            column = replies.by_part.get(part.key, [{} for _ in replies.ids])
            by_part[part.key] = [*column, extra]
        return replace(
            replies, ids=[*replies.ids, NOBODY], n=[*replies.n, 0], vectors=[*replies.vectors, server.vector + noise],
            sent=[*replies.sent, server.vector], steps=[*replies.steps, 0],
            effective_steps=[*replies.effective_steps, None], loss=[*replies.loss, 0.0], last=[*replies.last, 0.0],
            by_part=by_part,
        )  # fmt: skip


def adaptive(written: str) -> tuple[float, float]:
    """`adaptive(γ, C₀)`: the quantile, and the first bound (1 unless given)."""
    call = text.parse(written)
    if call.name != "adaptive" or not 1 <= len(call.args) <= 2 or call.options:
        raise BadRequest(f'dp: clip is a number or "adaptive(0.5)", not {written!r}')
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in call.args):
        raise BadRequest(f'dp: clip is a number or "adaptive(0.5)", not {written!r}')
    return float(call.args[0]), float(call.args[1]) if len(call.args) == 2 else 1.0


def uses_more_than_sums(part: Part) -> bool:
    return (defines(part, "receive") or defines(part, "step")) and not part.linear and part.axis != "upload"


def after(parts: list[Any], part: Part) -> list[Any]:
    return parts[parts.index(part) + 1 :]
