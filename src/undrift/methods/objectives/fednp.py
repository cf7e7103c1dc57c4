"""FedNP: a learned Gaussian prior on the last linear layer W, from what the other clients know.

Wu et al.: FedNP: Towards Non-IID Federated Learning via Federated Neural Propagation, AAAI 2023.

Every client has a cavity (c_m, c_s): the product of the other clients' factors over a latent of size 10. From it and
the mean feature f an expectation-propagation step gives (μ, σ). A small network (NPN: 10 → 10 → dim W, means and
variances side by side) turns them into a prior of W:

    each batch   (m, s) = NPN(μ, σ);  loss = CE + λ mean((W − m)²/(2s + ε)) (+ λ KL, which has no gradient)
    upload       the client's own factor: (μ, σ) divided by the cavity
    server       cavity of k: 1/var = Σ_{j≠k} 1/var_j,  mean = var · Σ_{j≠k} mean_j/var_j   over the cohort

The trap: the released division takes relu of a natural parameter that must be negative, so the uploaded variance is
*always* clamped to ε and the mean, where the factor exists, to ε or 5. That is the default, because it is what was
measured. `fix=True` divides correctly. The sign of ln(√2+1) differs between the EP step and the NPN in the release, and
is kept. In the release the NPN also contains the client's network and steps it a second time per batch. Not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Array, Declaration
from undrift.contract.parts import Batch, Job, Objective, Plan, Problem, Range, Replies, Server, Tree

LATENT, EPS, MOST = 10, 1e-5, 5.0
ROOT2 = math.sqrt(2)
FACTOR: Declaration = {"mean": Array(LATENT), "variance": Array(LATENT)}
Gaussian = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class FedNP(Objective):
    lam: Annotated[float, Range(least=0)] = 0.01
    fix: bool = False

    needs: ClassVar = ("features",)
    lockstep: ClassVar = True
    uplink: ClassVar[Declaration] = FACTOR
    downlink: ClassVar[Declaration] = FACTOR

    def passes(self, round: int) -> Sequence[str]:
        return ("received", "trained")

    def check(self, plan: Plan) -> Iterable[Problem]:
        head = plan.layout.head
        if head is not None and plan.layout.entry(f"{head}.weight").kind != "parameter":
            yield Problem(
                "error",
                f"fednp puts a prior on the last linear layer, and {head} of this model is frozen; train it, or use another method",
            )

    def message_for(self, server: Server, client: int) -> dict[str, torch.Tensor]:
        cavity: dict[str, torch.Tensor] = server.shelf.get(client, {})
        return cavity

    def init_client(self, job: Job) -> dict[str, torch.Tensor]:
        place, draw = prior_slice(job.plan), job.lasting("npn")
        dim = place.stop - place.start
        shapes = {"A": (LATENT, LATENT), "a": (LATENT,), "B": (LATENT, dim), "b": (dim,)}
        return {name: torch.rand(shape, generator=draw) * 0.1 - 0.05 for name, shape in shapes.items()}

    def before_training(self, job: Job, npn: Any, server_message: Message) -> dict[str, Any]:
        others = torch.full((LATENT,), 1 / max(job.plan.clients - 1, 1))
        cavity = (server_message.get("mean", torch.zeros(LATENT)), server_message.get("variance", others))
        device = job.received.device
        cavity = (cavity[0].to(device), cavity[1].to(device))
        here = ep_step(cavity, mean_feature(job.scored("start").features))
        return {"cavity": cavity, "here": here, "npn": {name: value.to(device) for name, value in npn.items()}}

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: dict[str, Any]) -> None:
        place = prior_slice(job.plan)
        if not batch.again:
            scratch["before"] = scratch["npn"], scratch["here"]
        npn, here = scratch["before"]
        npn = {name: value.detach().requires_grad_() for name, value in npn.items()}
        with torch.enable_grad():
            W = P[place].detach().requires_grad_()
            term = self.lam * prior(W, propagate(npn, here))
            slopes = torch.autograd.grad(term, [W, *npn.values()])
        G[place] += torch.nan_to_num(slopes[0], 0.0, 0.0, 0.0)
        if batch.again:
            return
        scratch["npn"] = {
            name: value.detach() - job.lr * torch.nan_to_num(slope, 0.0, 0.0, 0.0)
            for (name, value), slope in zip(npn.items(), slopes[1:])
        }
        scratch["here"] = ep_step(scratch["cavity"], mean_feature(batch.features))

    def after_training(self, job: Job, scratch: dict[str, Any], state: Any) -> tuple[Tree, Message]:
        whole = ep_step(scratch["cavity"], mean_feature(job.scored("trained").features))
        mean, variance = (divided if self.fix else divided_as_released)(whole, scratch["cavity"])
        return {name: value.detach() for name, value in scratch["npn"].items()}, {"mean": mean, "variance": variance}

    def receive(self, server: Server, replies: Replies) -> None:
        factors = [(message["mean"], message["variance"]) for message in replies.client_messages]
        for client, (mean, variance) in zip(replies.ids, cavities(factors)):
            server.shelf[client] = {"mean": mean, "variance": variance}


def prior_slice(plan: Plan) -> slice:
    return plan.layout.entry(f"{plan.layout.head}.weight").place


def mean_feature(features: torch.Tensor | None) -> torch.Tensor:
    assert features is not None
    return features.detach().mean()


def ep_step(cavity: Gaussian, f: torch.Tensor) -> Gaussian:
    """(μ, σ) from the cavity and the mean feature: moments of a Gaussian times a sigmoid (probit approximation)."""
    a, b = f * cavity[0], f**2 * cavity[1]

    def kappa(alpha: float, beta: float) -> torch.Tensor:
        return torch.sigmoid(alpha * (a + beta) / ((1 + math.pi / 8 * alpha**2 * b).relu().sqrt() + EPS))

    e1, e2 = kappa(1.0, 0.0), kappa(4 - 2 * ROOT2, math.log(ROOT2 + 1))
    e3 = kappa(6 * (1 - 2**-1.5), math.log(2**1.5 - 1))
    P1, P2 = (a + b) * e1 - b * e2, (a + 2 * b) * e2 - 2 * b * e3
    s1 = P1 / (e1 * f + EPS)
    s2 = (b * e1 + (a + b) * P1 - b * P2) / (e1 * f**2 + EPS)
    return s1.clamp(EPS, MOST), ((s2 - s1**2).relu() + EPS).clamp(EPS, MOST)


def propagate(npn: dict[str, torch.Tensor], here: Gaussian) -> Gaussian:
    """The NPN: the moments of a Gaussian after linear, sigmoid and linear layers."""
    alpha, beta, xi2 = 4 - 2 * ROOT2, -math.log(ROOT2 + 1), math.pi / 8
    o_m, o_s = here[0] @ npn["A"] + npn["a"], here[1] @ npn["A"] ** 2
    a_m = torch.sigmoid(o_m / (1 + xi2 * o_s).sqrt())
    a_s = (torch.sigmoid(alpha * (o_m + beta) / (1 + xi2 * alpha**2 * o_s).sqrt()) - a_m**2).relu()
    return a_m @ npn["B"] + npn["b"], a_s @ npn["B"] ** 2


def prior(W: torch.Tensor, weights: Gaussian) -> torch.Tensor:
    m, s = weights
    return ((W - m) ** 2 / (2 * s + EPS)).mean()


def divided(whole: Gaussian, cavity: Gaussian) -> Gaussian:
    """The factor q with whole = q · cavity, in natural parameters. A variance that would be negative is made large."""
    d = (-0.5 / whole[1] + 0.5 / cavity[1]).clamp(max=-EPS)
    variance = -0.5 / d
    return variance * (whole[0] / whole[1] - cavity[0] / cavity[1]), variance


def divided_as_released(whole: Gaussian, cavity: Gaussian) -> Gaussian:
    """relu makes a number that must be negative at least zero, so the inverse is negative and clamped to ε."""
    d = (-0.5 / (whole[1] + EPS) + 0.5 / (cavity[1] + EPS)).relu() + EPS
    variance = -2 / (d + EPS)
    mean = variance * (whole[0] / (whole[1] + EPS) - cavity[0] / (cavity[1] + EPS))
    return mean.clamp(EPS, MOST), variance.clamp(EPS, MOST)


def cavities(factors: list[Gaussian]) -> list[Gaussian]:
    """For each client the product of the other clients' Gaussians. Without other clients the variance is 5."""
    precisions = [1 / (variance + EPS) for _, variance in factors]
    out = []
    for k in range(len(factors)):
        others = [j for j in range(len(factors)) if j != k]
        total = sum((precisions[j] for j in others), torch.zeros(LATENT))
        pull = sum((factors[j][0] * precisions[j] for j in others), torch.zeros(LATENT))
        variance = (1 / (total + EPS)).clamp(max=MOST)
        out.append((variance * pull, variance))
    return out
