"""Published names: a table from a name to the parts it stands for.

A factory takes plain parameters, hands each part its own, and gives a `Bundle`: what the name *brings* (it gives way
only to what the user names on that axis) and what it merely *prefers*. `undrift methods` prints this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from undrift import combine, objectives, personalize, private, sampling, server, weighting
from undrift.compose import Bundle
from undrift.personalize.fliu import STEPS

Factory = Callable[..., Bundle]


@dataclass(frozen=True)
class Published:
    name: str
    factory: Factory
    paper: str

    @property
    def what(self) -> str:
        """One line of what it is."""
        return (self.factory.__doc__ or "").strip().splitlines()[0]


PUBLISHED: dict[str, Published] = {}


def published(name: str, paper: str) -> Callable[[Factory], Factory]:
    def register(factory: Factory) -> Factory:
        PUBLISHED[name] = Published(name, factory, paper)
        return factory

    return register


# ---- averaging -------------------------------------------------------------------------------------------------------


@published("fedavg", paper="McMahan et al., AISTATS 2017")
def fedavg() -> Bundle:
    """Local training and the mean of the models, weighted by size."""
    return Bundle()


@published("fedavg-uniform", paper="McMahan et al., AISTATS 2017")
def fedavg_uniform() -> Bundle:
    """Local training and the plain mean of the models: the control wherever sizes differ."""
    return Bundle(brings=(weighting.uniform(),))


@published("fednova", paper="Wang et al., NeurIPS 2020")
def fednova() -> Bundle:
    """Averaging that is normalised by the number of local steps."""
    return Bundle(brings=(combine.fednova(),))


@published("fedavgm", paper="Hsu et al., 2019")
def fedavgm(rho: float = 0.9) -> Bundle:
    """Averaging with momentum at the server."""
    return Bundle(brings=(server.momentum(rho),))


@published("fedmr", paper="Hu et al., 2022")
def fedmr(T1: int | None = None, unit: str = "key") -> Bundle:
    """Recombination of the clients' models instead of their mean."""
    return Bundle(brings=(server.fedmr(T1, unit),))  # type: ignore[arg-type]


@published("fednolowe", paper="Le et al., PLOS ONE 2025")
def fednolowe(loss: str = "all", normalise: str = "l1", invert: str = "subtract", reverse: bool = False) -> Bundle:
    """Averaging tilted towards clients with a low training loss."""
    return Bundle(brings=(weighting.fednolowe(loss, normalise, invert, reverse),))  # type: ignore[arg-type]


# ---- local training --------------------------------------------------------------------------------------------------


@published("fedprox", paper="Li et al., MLSys 2020")
def fedprox(mu: float = 0.01, adaptive: bool = False) -> Bundle:
    """A pull towards the received model in local training."""
    return Bundle(brings=(objectives.fedprox(mu, adaptive),))


@published("scaffold", paper="Karimireddy et al., ICML 2020")
def scaffold(scaled: bool = False, normalise: bool = False) -> Bundle:
    """Control variates that correct every local step."""
    return Bundle(brings=(objectives.scaffold(scaled, normalise),), prefers=(weighting.uniform(),))


@published("feddyn", paper="Acar et al., ICLR 2021")
def feddyn(alpha: float = 0.01, cap: float | None = 10.0) -> Bundle:
    """Dynamic regularisation: every client remembers its drift, the server adds everybody's."""
    return Bundle(brings=(objectives.feddyn(alpha, cap),), prefers=(weighting.uniform(),))


@published("fedlc", paper="Zhang et al., ICML 2022")
def fedlc(tau: float = 1.0) -> Bundle:
    """Logits calibrated by the client's label counts."""
    return Bundle(brings=(objectives.fedlc(tau),))


@published("flood", paper="FLOOD (paper 000)")
def flood(
    q: float = 0.7,
    a: float = 5.0,
    T: int | None = None,
    floor: float = 1.0,
    schedule: str = "cosine",
    start: str = "early",
    start_form: str = "shift",
    score: str = "energy",
    scored_by: str = "local",
    alpha: float = 0.5,
    norm_phi: str = "auto",
    control: str = "none",
    phi: str = "measured",
    rate: float | None = None,
) -> Bundle:
    """Samples the model is unsure of weigh more in training, confident clients more in the mean."""
    samples = sampling.flood(
        q, a, T, floor, schedule, start, start_form, score, scored_by, control, rate,  # type: ignore[arg-type]
    )  # fmt: skip
    return Bundle(brings=(samples, weighting.flood(alpha, norm_phi, score, phi)))  # type: ignore[arg-type]


@published("fedbss", paper="FedBSS (paper 001)")
def fedbss(
    T1: int | None = None,
    boundary: str = "uncertainty",
    level: float | None = None,
    pacing: str = "cosine",
    order: str = "loss",
) -> Bundle:
    """A curriculum inside every local round, from easy to hard samples."""
    part = sampling.fedbss(T1, boundary, level, pacing, order)  # type: ignore[arg-type]
    return Bundle(brings=(part,), prefers=(weighting.uniform(),))


# ---- personal models -------------------------------------------------------------------------------------------------


@published("fliu", paper="Hussaini et al., 2025")
def fliu(
    gamma: float | None = None, steps: tuple[tuple[float, float], ...] = STEPS, shuffle: bool = False
) -> Bundle:
    """Every client keeps an individual mix of its own and the global model."""
    return Bundle(brings=(personalize.fliu(gamma, steps, shuffle),), prefers=(weighting.uniform(),))


def fixed_fliu(percent: int) -> Factory:
    def factory() -> Bundle:
        return fliu(gamma=percent / 100)

    factory.__doc__ = f"FLIU with the fixed share γ = {percent / 100:g} of a client's own model."
    return factory


for percent in (10, 25, 50, 75, 90):
    published(f"fliu{percent}", paper="Hussaini et al., 2025")(fixed_fliu(percent))


@published("clt", paper="Hussaini et al., 2025")
@published("local", paper="Hussaini et al., 2025")
def local() -> Bundle:
    """Every client trains alone."""
    return Bundle(brings=(personalize.local(),))


@published("apfl", paper="Deng et al., 2020")
def apfl(variant: str = "pfllib", alpha0: float = 0.5, adaptive: bool = True) -> Bundle:
    """A personal model beside the global one, and a learned share of it."""
    return Bundle(brings=(personalize.apfl(variant, alpha0, adaptive),))  # type: ignore[arg-type]


@published("fedfomo", paper="Zhang et al., ICLR 2021")
def fedfomo(M: int = 5, validation: float = 0.2) -> Bundle:
    """Every client mixes the models of others that help it."""
    return Bundle(brings=(personalize.fedfomo(M, validation),))


@published("fedrep", paper="Collins et al., ICML 2021")
def fedrep(body_epochs: int = 1) -> Bundle:
    """A shared body and private heads, trained in turn."""
    return Bundle(brings=(personalize.fedrep(body_epochs), private.head()))


@published("fedper", paper="Arivazhagan et al., 2019")
def fedper() -> Bundle:
    """The head stays at the client."""
    return Bundle(brings=(private.head(),))


@published("fedbn", paper="Li et al., ICLR 2021")
def fedbn() -> Bundle:
    """Normalisation layers stay at the client."""
    return Bundle(brings=(private.norms(),))
