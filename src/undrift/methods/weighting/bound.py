"""Bound ("robust") weighting: the wider a client's generalisation bound, the less it counts.

Xu, Cao, Tsang, Kwok: Aggregation Weighting of Federated Learning via Generalization Bound Estimation.

X = L² of a loss L in [0, M]. With m = mean X, v = variance of X, r = δ², c = √(r(2−r)(1−r)²), every distribution Q
within Hellinger distance δ of the client's has E_Q[X] in [l, u]:

    u(δ) = m + 2c√v + r(2−r)[M² − m − v/(M²−m)]   while r ≤ 1 − [1 + (M²−m)²/v]^(−1/2), else M²
    l(δ) = M² − u(δ) of the mirrored loss (m → M² − m)
    η = Σ_δ |u − l|        p_k ∝ 1/η_k

The trap: η(m, v) = η(M² − m, v). The rule penalises the *spread* of the loss, not its size: a client on which the model
is always wrong gets the same, smallest η as one on which it is always right. Without `finite` a client of one sample
has v = 0 and therefore the smallest η as well. On the default grid η lies in [0.303946, 3.026150] at M = 1.

The paper's eq. 16 prints M where its proof has M². With M the theorem is false at M > 1. It is not known which loss and
grid the authors used, or whether they measured before or after training. `before` compares all clients under the same
model. `invert` selects the controls: does η do more than the mean loss, √v, the size, or chance? `on=test` measures on the
client's own test slice, which the authors' Sec. 5.1 seems to do: the test data then choose the weights, so that accuracies of
such a run are no test. Under a server that sends another vector than it evaluates (FedDyn's Θ = θ̄ + Σh/N),
`under=evaluated` measures θ̄, which travels down beside Θ.

Any loss in [0, M] will do, so other tasks have theirs: jsd and zero_one are means over the tokens of a sequence or the
pixels of a mask, zero_one of several labels is the share that is wrong, and ce is the task's own loss, clipped at M. A
regression has neither classes nor errors: give it bound(loss=ce, M=…).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Along, Declaration, Number
from undrift.contract.parts import Job, Plan, Problem, Range, Replies, Server, Tree, Weighting
from undrift.contract.task import Task
from undrift.core.errors import BadRequest

DOUBT = math.log(2 / 0.01)  # finite-sample terms hold with probability 0.99
LEAST = 1e-3  # of M²: the controls 1/mean loss and 1/√v have no lower bound of their own


@dataclass(frozen=True)
class Bound(Weighting):
    loss: Literal["jsd", "zero_one", "ce"] = "jsd"  # ce is the task's own, clipped at M
    M: Annotated[float | None, Range(above=0)] = None  # largest loss; None: 1, and 2 ln C for ce of classes
    moment: Literal[1, 2] = 2
    when: Literal["before", "after"] = "before"
    on: Literal["train", "held", "test"] = "train"
    share: Annotated[float, Range(above=0, below=1)] = 0.2  # held out, where on = held
    radius: Annotated[float, Range(above=0, most=1)] = 0.2
    points: Annotated[int, Range(least=1)] = 10
    # Where the grid starts. None: radius / points; 0: the client's own distribution.
    start: Annotated[float | None, Range(least=0, most=1)] = None
    finite: bool = False
    invert: Literal["eta", "mean_loss", "sqrt_v", "n_over_eta", "permuted"] = "eta"
    under: Literal["received", "evaluated"] = "received"  # the model that is measured, where when = before

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.loss == "ce":
            return () if self.M is not None else ("class_logits",)
        return ("class_logits",) if self.loss == "jsd" else ("errors",)

    @property
    def uplink(self) -> Declaration:
        return {"spread": Number(*self.spread_range())}

    @property
    def downlink(self) -> Declaration:
        return {"evaluated": Along("model")} if self.under == "evaluated" else {}

    def validate(self) -> None:
        if self.M is not None and self.loss != "ce" and self.M != 1:
            raise BadRequest(f"bound: M must be 1 (or none) for {self.loss}, not {self.M}; only loss=ce has another M")
        if self.start is not None and self.start > self.radius:
            raise BadRequest(f"bound: start must be between 0 and the radius {self.radius}, not {self.start}")
        if self.under == "evaluated" and self.when == "after":
            raise BadRequest("bound: under=evaluated measures before training; leave out when=after")

    def check(self, plan: Plan) -> Iterable[Problem]:
        if self.on == "test":
            yield Problem(
                "warning",
                "bound(on=test) weighs the clients by their test data: accuracies of this run are on data that the method "
                "has seen",
            )

    @property
    def measures(self) -> str:  # type: ignore[override]
        return "received" if self.when == "before" and self.under == "received" else ""

    def resolve(self, plan: Plan) -> Bound:
        largest = 2 * math.log(plan.classes) if self.loss == "ce" and plan.classes > 1 else 1.0
        start = self.radius / self.points if self.start is None else self.start
        if self.M is None and "class_logits" in self.needs and "class_logits" in plan.lacks:
            return replace(self, start=start)  # refused for what it needs
        return replace(self, M=largest if self.M is None else self.M, start=start)

    def hold_out(self, job: Job) -> torch.Tensor:
        """A share of the samples, at least one and never all, the same in every round."""
        count = min(max(1, round(self.share * job.n)), job.n - 1) if self.on == "held" else 0
        return torch.randperm(job.n, generator=job.lasting("held"))[:count]

    def broadcast(self, server: Server) -> Message:
        return {"evaluated": server.last_evaluated} if self.under == "evaluated" else {}

    def passes(self, round: int) -> tuple[str, ...]:
        if self.on != "train" or (self.when != "after" and self.under == "evaluated"):
            return ()
        return ("trained",) if self.when == "after" else ("received",)

    def before_training(self, job: Job, state: Any, server_message: Message) -> float | None:
        if self.when == "after":
            return None
        if self.under == "evaluated":
            return self.spread(job, self.measured(job, server_message["evaluated"], self.on))
        return self.spread(job, self.losses(job, "received"))

    def after_training(self, job: Job, scratch: float | None, state: Any) -> tuple[Tree, Message]:
        return state, {"spread": self.spread(job, self.losses(job, "trained")) if scratch is None else scratch}

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        server.note("delta", self.grid())
        spread = torch.tensor([message["spread"] for message in replies.client_messages], dtype=torch.float64)
        if self.invert == "permuted":  # among the clients by id, so that the order of replies has no effect
            place = torch.tensor(replies.ids).argsort()
            drawn = torch.randperm(len(place), generator=server.stream("permuted"))
            spread = spread.scatter(0, place, spread[place][drawn])
        size = torch.tensor(replies.n, dtype=torch.float64) if self.invert == "n_over_eta" else 1.0
        return size / spread

    def spread(self, job: Job, losses: torch.Tensor) -> float:
        """The number whose inverse is this client's weight: η, or that of a control."""
        M = 1.0 if self.M is None else self.M
        L = losses.clamp(max=M)
        M2 = M**self.moment
        X = L**self.moment
        m, v = X.mean().item(), X.var().item() if len(X) > 1 else 0.0
        grid = self.grid()
        u, l = bounds(m, v, M2, grid, len(X) if self.finite else None)
        width = (u - l).abs().sum().item()
        for name, value in (("m", m), ("v", v), ("u", u), ("l", l), ("eta", width)):
            job.note(name, value)
        other = {"mean_loss": L.mean().item() / M, "sqrt_v": math.sqrt(v) / M2 if v >= 0 else v}
        if self.invert not in other:
            return width
        job.note(self.invert, other[self.invert])
        return max(other[self.invert], LEAST)

    def spread_range(self) -> tuple[float, float]:
        """The least and the largest spread. Its inverse is a weight, so a claim below the least would buy weight."""
        if self.invert in ("mean_loss", "sqrt_v"):
            return LEAST, 1.0
        M2 = (1.0 if self.M is None else self.M) ** self.moment
        r = self.grid() ** 2
        return M2 * (r * (2 - r)).sum().item(), M2 * self.points  # v = 0, whatever m is; every u − l is at most M²

    def losses(self, job: Job, role: str) -> torch.Tensor:
        """L of every sample for the model in a role; the pass over the training data is shared with other parts."""
        if self.on == "train":
            return LOSS[self.loss](job.plan.task, job.scored(role).logits.double(), job.targets)
        return self.measured(job, getattr(job, role), self.on)

    def measured(self, job: Job, vector: torch.Tensor, on: str) -> torch.Tensor:
        """L of every sample in a pass of its own. A client of one sample holds nothing out, and not every client has a test
        slice: then of the training data."""
        replica, loss, task = job.replica(vector), LOSS[self.loss], job.plan.task
        batches = [loss(task, replica(x)[0].double(), y) for x, y in job.batches("held", on=on)]
        return torch.cat(batches) if batches else self.measured(job, vector, "train")

    def grid(self) -> torch.Tensor:
        start = self.radius / self.points if self.start is None else self.start
        return torch.linspace(start, self.radius, self.points, dtype=torch.float64)


def bounds(
    m: float, v: float, M2: float, deltas: torch.Tensor, n: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(u, l) of E_Q[X], X in [0, M2] with mean m and variance v, one number per radius. With n the mean and the
    standard deviation are estimates from n samples, and the finite-sample terms are added."""
    v = min(v, m * (M2 - m)) if v >= 0 else v  # the unbiased estimate may exceed what [0, M2] allows
    if n is None:
        return upper(m, v, M2, deltas), M2 - upper(M2 - m, v, M2, deltas)
    if n < 2:
        return torch.full_like(deltas, M2), torch.zeros_like(deltas)
    off = M2 * math.sqrt(DOUBT / (2 * n))
    v = (math.sqrt(max(v, 0.0)) + M2 * math.sqrt(2 * DOUBT / (n - 1))) ** 2
    return upper(m + off, v, M2, deltas), M2 - upper(M2 - m + off, v, M2, deltas)


def upper(m: float, v: float, M2: float, deltas: torch.Tensor) -> torch.Tensor:
    if not math.isfinite(m):
        return torch.full_like(deltas, math.nan)
    gap = M2 - m
    if gap <= 0:
        return torch.full_like(deltas, M2)
    v = max(v, 0.0)
    r = deltas.double() ** 2
    c = (r * (2 - r)).sqrt() * (1 - r)
    u = m + 2 * c * math.sqrt(v) + r * (2 - r) * (gap - v / gap)
    valid = r <= 1 - math.sqrt(v / (v + gap**2))
    return torch.where(valid, u, M2).clamp(0.0, M2)


def eta(m: float, v: float, M2: float, deltas: torch.Tensor, n: int | None = None) -> float:
    """The width of the bounds, summed over the radii."""
    u, l = bounds(m, v, M2, deltas, n)
    return (u - l).abs().sum().item()


def jsd(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Jensen–Shannon divergence (base 2) between softmax and one-hot label; it depends on p_y alone."""
    return jsd_of(logits.softmax(-1).gather(-1, y[..., None])[..., 0])


def of_classes(task: Task, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`jsd`, the mean over a sample's tokens or pixels. Where there is no token, any class will do."""
    logits = task.class_logits(output)
    return task.per_sample(jsd(logits, y.clamp(0, logits.size(-1) - 1)), y)


def jsd_of(p: torch.Tensor) -> torch.Tensor:
    both: torch.Tensor = torch.special.xlogy(p, p) - torch.special.xlogy(1 + p, 1 + p)
    return (1 + both / (2 * math.log(2))).clamp(0.0, 1.0)


def zero_one(task: Task, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    error = task.error(logits, y)
    assert error is not None  # the part needs "errors"
    return error.double()


def own_loss(task: Task, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return task.loss(logits, y)


LOSS = {"jsd": of_classes, "zero_one": zero_one, "ce": own_loss}
