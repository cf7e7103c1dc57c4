"""Published names: a table from a name to the parts it stands for.

A factory takes plain parameters, hands each part its own, and gives a `Bundle`: what the name *brings* (it gives way
only to what the user names on that axis) and what it merely *prefers*. `undrift methods` prints this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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
def fliu(gamma: float | None = None, steps: tuple[tuple[float, float], ...] = STEPS, shuffle: bool = False) -> Bundle:
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


# ---- rivals: weighting -----------------------------------------------------------------------------------------------


@published("bound", paper="Xu et al. (paper 003)")
def bound(
    loss: Literal["jsd", "zero_one", "ce"] = "jsd",
    M: float | None = None,
    moment: Literal[1, 2] = 2,
    when: Literal["before", "after"] = "before",
    on: Literal["train", "held"] = "train",
    share: float = 0.2,
    radius: float = 0.2,
    points: int = 10,
    start: float | None = None,
    finite: bool = False,
    invert: Literal["eta", "mean_loss", "sqrt_v", "n_over_eta", "permuted"] = "eta",
) -> Bundle:
    """Averaging in which a client counts less the wider its generalisation bound is."""
    part = weighting.bound(loss, M, moment, when, on, share, radius, points, start, finite, invert)
    return Bundle(brings=(part,))


@published("fedasl", paper="Talukder et al., 2022")
def fedasl(
    alpha: float = 0.5,
    beta: float = 0.2,
    loss: Literal["all", "last"] = "all",
    ddof: Literal[0, 1] = 0,
    hybrid: bool = False,
) -> Bundle:
    """Averaging in which clients near the median loss count most."""
    return Bundle(brings=(weighting.fedasl(alpha, beta, loss, ddof, hybrid),))


@published("feddisco", paper="Ye et al., ICML 2023")
def feddisco(a: float = 0.5, b: float = 0.1) -> Bundle:
    """Size weights corrected by how far a client's labels are from uniform."""
    return Bundle(brings=(weighting.feddisco(a, b),))


@published("aflama", paper="Wang et al., 2024 (a reconstruction)")
def aflama(floor: float = 0.5) -> Bundle:
    """A reconstruction: averaging by accuracy on a validation set of the server."""
    return Bundle(brings=(weighting.aflama(floor),))


# ---- rivals: local training ------------------------------------------------------------------------------------------


@published("moon", paper="Li, He, Song, CVPR 2021")
def moon(mu: float = 1.0, tau: float = 0.5, head: bool = False, width: int = 256) -> Bundle:
    """Features pulled towards the received model's and pushed from the last local model's."""
    return Bundle(brings=(objectives.moon(mu, tau, head, width),))


@published("feddecorr", paper="Shi et al., ICLR 2023")
def feddecorr(beta: float = 0.1, normalise: bool = False) -> Bundle:
    """Features that are kept uncorrelated, against dimensional collapse."""
    return Bundle(brings=(objectives.feddecorr(beta, normalise),))


@published("fednp", paper="Wu et al., AAAI 2023")
def fednp(lam: float = 0.01, fix: bool = False) -> Bundle:
    """A learned prior on the last layer, from what the other clients know."""
    return Bundle(brings=(objectives.fednp(lam, fix),))


@published("fedrs", paper="Li, Zhan, KDD 2021")
def fedrs(alpha: float = 0.5, soft: bool = False) -> Bundle:
    """Scores of classes a client does not have are scaled down."""
    return Bundle(brings=(objectives.fedrs(alpha, soft),))


# ---- rivals: the server ----------------------------------------------------------------------------------------------


@published("fedma", paper="Wang et al., ICLR 2020")
def fedma(variant: Literal["matching", "fednolowe"] = "matching") -> Bundle:
    """Hidden units are put in a common order before they are averaged."""
    prefers = (weighting.uniform(),) if variant == "fednolowe" else ()
    return Bundle(brings=(combine.fedma(variant),), prefers=prefers)


@published("fedcda", paper="Wang et al., ICLR 2024")
def fedcda(K: int = 3, groups: int = 3, L: float = 1.0, warmup: int | None = None, most: int = 4) -> Bundle:
    """Averaging across rounds: of every client the cached model that fits the others best."""
    return Bundle(brings=(combine.fedcda(K, groups, L, warmup, most),))


@published("inco", paper="Chan et al., ICLR 2024")
def inco() -> Bundle:
    """Uniform averaging in which deep layers are steered by a shallow one of their stage."""
    return Bundle(brings=(combine.inco(),))


@published("fedlaw", paper="Li et al., ICML 2023")
def fedlaw(
    epochs: int = 20,
    lr: float = 0.01,
    batch: int = 128,
    form: Literal["exponential", "quadratic"] = "exponential",
    halve: int = 20,
) -> Bundle:
    """Weights and a shrinking factor learned on a proxy set."""
    return Bundle(brings=(combine.fedlaw(epochs, lr, batch, form, halve),))


@published("fedexp", paper="Jhunjhunwala, Wang, Joshi, ICLR 2023")
def fedexp(epsilon: float = 1e-3) -> Bundle:
    """A server step that grows when the clients' updates disagree."""
    return Bundle(brings=(server.fedexp(epsilon),))


@published("fedadagrad", paper="Reddi et al., ICLR 2021")
def fedadagrad(lr: float = 0.01, beta1: float = 0.9, tau: float = 1e-3) -> Bundle:
    """Adagrad at the server."""
    return Bundle(brings=(server.fedadagrad(lr, beta1, tau),))


@published("fedadam", paper="Reddi et al., ICLR 2021")
def fedadam(lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Bundle:
    """Adam at the server, without bias correction."""
    return Bundle(brings=(server.fedadam(lr, beta1, beta2, tau),))


@published("fedyogi", paper="Reddi et al., ICLR 2021")
def fedyogi(lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Bundle:
    """Yogi at the server."""
    return Bundle(brings=(server.fedyogi(lr, beta1, beta2, tau),))


# ---- robust rules ----------------------------------------------------------------------------------------------------


@published("median", paper="Yin et al., ICML 2018")
def median() -> Bundle:
    """The coordinate median of the clients' updates."""
    return Bundle(brings=(combine.median(),))


@published("trimmed", paper="Yin et al., ICML 2018")
def trimmed(share: float = 0.2) -> Bundle:
    """The mean of the updates without the smallest and largest, coordinate by coordinate."""
    return Bundle(brings=(combine.trimmed(share),))


@published("krum", paper="Blanchard et al., NeurIPS 2017")
def krum(f: int = 1) -> Bundle:
    """The one update that has the nearest neighbours."""
    return Bundle(brings=(combine.krum(f),))


@published("multikrum", paper="Blanchard et al., NeurIPS 2017")
def multikrum(f: int = 1) -> Bundle:
    """The mean of the updates that have the nearest neighbours."""
    return Bundle(brings=(combine.krum(f, multi=True),))


@published("geomedian", paper="Pillutla, Kakade, Harchaoui, IEEE TSP 2022")
def geomedian(nu: float = 1e-6, steps: int = 100) -> Bundle:
    """The geometric median of the clients' updates."""
    return Bundle(brings=(combine.geomedian(nu, steps),))


@published("normbound", paper="Sun et al., 2019")
def normbound(bound: float | None = None) -> Bundle:
    """Updates longer than a bound are shortened before they are averaged."""
    return Bundle(brings=(combine.normbound(bound),))


# ---- rivals: personal models -----------------------------------------------------------------------------------------


@published("ditto", paper="Li et al., ICML 2021")
def ditto(lam: float = 0.1) -> Bundle:
    """A personal model beside the global one, held near it."""
    return Bundle(brings=(personalize.ditto(lam),))


@published("finetune", paper="a baseline without a paper")
def finetune(epochs: int = 1) -> Bundle:
    """Every client holds the global model after a few more epochs on its own data; evaluation only."""
    return Bundle(brings=(personalize.finetune(epochs),))
