"""The conformance table: every published method and every part, with its schedule *active*, as one row each.

Adding a method is adding a row; `test_table.py` fails for a name that has none. A row runs on one federation of six
clients (one with a single class, one with a single sample) for three rounds, on a plain network and on one with
BatchNorm and dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from undrift.federation.federation import Federation
from undrift.testing import Outcome, adapted_network, run_parts, small_network

FEATURES, CLASSES, ROUNDS = 16, 3, 3
ONE_CLASS, ONE_SAMPLE, SICK = 0, 1, 3
SIZES = (14, 1, 10, 12, 17, 21)
SHORT = {"rounds": ROUNDS, "epochs": 2, "batch": 8, "lr": 0.1, "evaluate_every": 100}


@dataclass(frozen=True)
class Row:
    """What is run, and where the battery must know better."""

    text: str
    like_fedavg: str = ""  # why the evaluated model equals FedAvg's, where it does
    model: str = "plain"  # the network that makes the method do something
    options: dict[str, Any] = field(default_factory=dict)
    other_name: bool = False  # of a row that has been through the battery: only the table looks at it
    alone: str = ""  # the word in the sentence that refuses a cohort of one
    batchnorm: str = ""  # the word in the sentence that refuses BatchNorm
    noisy: bool = False  # a round moves the model even if nobody answers

    def __str__(self) -> str:
        return self.text


PERSONAL = "the global model is FedAvg's; the personal one is not"
FEW = "cohort"
ROWS = [
    # averaging
    Row("fedavg", like_fedavg="it is FedAvg"),
    Row("fedavg-uniform"),
    Row("fednova"),
    Row("fedavgm"),
    Row("fedmr(T1=1)"),
    Row("fednolowe"),
    # local training
    Row("fedprox(mu=0.1)"),
    Row("fedprox(mu=0.1, adaptive=true)"),
    Row("scaffold"),
    Row("scaffold(scaled=true)"),
    Row("feddyn(alpha=0.1)"),
    Row("fedlc"),
    Row("flood(T=2)"),
    Row("flood(T=2, scored_by=received, score=ash-s)"),
    Row("fedbss(T1=1)"),
    # personal models
    Row("fliu"),
    Row("fliu(shuffle=true)"),
    Row("fliu10", other_name=True),
    Row("fliu25", other_name=True),
    Row("fliu50"),
    Row("fliu75", other_name=True),
    Row("fliu90", other_name=True),
    Row("local"),
    Row("clt", other_name=True),
    Row("apfl", like_fedavg=PERSONAL),
    Row("fedfomo(M=2)"),
    Row("fedrep"),
    Row("fedper"),
    Row("fedbn", model="norm"),
    # rivals
    Row("bound"),
    Row("bound(when=after, on=held)"),
    Row("fedasl"),
    Row("feddisco"),
    Row("aflama"),
    Row("moon"),
    Row("feddecorr"),
    Row("fednp"),
    Row("fedrs"),
    Row("fedsam(rho=0.2)"),
    Row("fedsam(rho=0.2, adaptive=true)"),
    Row("fedntd"),
    Row("fedma", options={"lr": 2.0}),  # with small steps nobody's units change places
    Row("fedma(variant=fednolowe)"),
    Row("fedcda(warmup=1)"),
    Row("inco", model="conv"),
    Row("fedlaw(epochs=2)"),
    Row("fedexp"),
    Row("fedadagrad"),
    Row("fedadam"),
    Row("fedyogi"),
    Row("median", alone=FEW),
    Row("trimmed", alone=FEW),
    Row("krum", alone=FEW),
    Row("multikrum", alone=FEW),
    Row("geomedian", alone=FEW),
    Row("normbound"),
    Row("ditto", like_fedavg=PERSONAL),
    Row("finetune", like_fedavg=PERSONAL),
    Row("pfedme(lam=2)"),
    Row("fedproto"),
    Row("objective.fedproto"),
    # low-rank adapters
    Row("ffa-lora", model="adapted"),
    Row("fedsa-lora", model="adapted"),
    Row("flexlora", model="adapted"),
    Row("flora", model="merged"),
    Row("hetlora(ranks=[1, 2])", model="adapted"),
    # parts that no published name brings
    Row("sampling.subset"),
    Row("weighting.mix([size(), bound()], [0.5, 0.5])"),
    Row('private.named("*bias")'),
    Row("weighting.size", like_fedavg="it is FedAvg", other_name=True),
    Row("combine.mean", like_fedavg="it is FedAvg", other_name=True),
    Row("server.replace", like_fedavg="it is FedAvg", other_name=True),
    # uploads and privacy
    Row("fedprox+dpsgd(noise=0.5)", batchnorm="norm=group"),
    Row("fedavg+topk(0.2)"),
    Row("fedavg+quantize(4)"),
    Row("scaffold+dp(noise=0.1, clip=0.5)", batchnorm="norm=group", noisy=True),
    Row('fedavg+topk(0.3)+dp(noise=0.1, clip="adaptive(0.5)")', batchnorm="norm=group", noisy=True),
    Row("fedper+topk(0.3)+quantize(8)"),
    # compositions
    Row("fedbss(T1=1)+scaffold@fednolowe"),
    Row("flood(T=2)+fedbss(T1=1)"),
    Row("fedprox+feddyn"),
    Row("scaffold+fliu"),
    Row("fedbn+fliu", model="norm"),
    Row("flood(T=2)+scaffold+fliu@bound"),
    Row("fedbss(T1=1)+fedprox@fednolowe"),
    Row("feddyn@bound"),
    Row("scaffold+fedsam(rho=0.2)"),
    Row("fedsa-lora+scaffold@fednolowe", model="adapted"),
    Row("flood(T=2)+fedlc+fedsam(rho=0.2)+pfedme(lam=2)"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", [row for row in ROWS if not row.other_name], ids=str)
    if "any_row" in metafunc.fixturenames:
        metafunc.parametrize("any_row", ROWS, ids=str)


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    return ROWS


def blobs(sick: tuple[int, ...] = ()) -> Federation:
    """Six unequal clients, a proxy set, and NaN in the data of those that are sick."""
    draw = np.random.default_rng(7)
    centres = draw.normal(size=(CLASSES, FEATURES))
    proxy, tests = 12, 10
    xs, ys, parts, at = [], [], [], 0
    for client, n in enumerate((*SIZES, proxy, tests * len(SIZES))):
        shares = np.full(CLASSES, 1.0)
        if client < len(SIZES):
            shares = np.where(np.arange(CLASSES) == client % CLASSES, 1.0, 0.0 if client == ONE_CLASS else 0.2)
        y = draw.choice(CLASSES, n, p=shares / shares.sum())
        ys.append(torch.from_numpy(y))
        xs.append(torch.from_numpy((centres[y] + draw.normal(size=(n, FEATURES))).astype(np.float32)))
        parts.append(np.arange(at, at + n))
        at += n
    for client in sick:
        xs[client][:] = torch.nan
    x, y = torch.cat(xs[:-1]), torch.cat(ys[:-1])
    slices = [np.arange(k * tests, (k + 1) * tests) for k in range(len(SIZES))]
    labels = [str(c) for c in range(CLASSES)]
    return Federation("blobs", (x, y), (xs[-1], ys[-1]), parts[:-2], labels, slices, proxy=parts[-2])


def plain() -> nn.Module:
    return small_network(FEATURES, CLASSES)


def norm() -> nn.Module:
    return small_network(FEATURES, CLASSES, norm=True, dropout=0.3)


def conv(norm: bool = False) -> nn.Module:
    def block(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 4, 3, padding=1), *([nn.BatchNorm2d(4)] if norm else []), nn.ReLU()]

    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), *block(1), *block(4), *block(4), nn.Flatten(), nn.Linear(64, CLASSES)
    )


def adapted(merged: bool = False, **more: Any) -> nn.Module:
    return adapted_network(FEATURES, CLASSES, merged=merged, **more)


BATCHNORM: dict[str, Any] = {"norm": True, "dropout": 0.3}
MODELS = {
    "plain": plain, "norm": norm, "conv": conv, "conv_norm": lambda: conv(norm=True), "adapted": adapted,
    "adapted_norm": lambda: adapted(**BATCHNORM), "merged": lambda: adapted(True),
    "merged_norm": lambda: adapted(True, **BATCHNORM),
}  # fmt: skip


@pytest.fixture(scope="session")
def federation() -> Federation:
    return blobs()


@pytest.fixture(scope="session")
def sick() -> Callable[..., Federation]:
    """The same federation after somebody's data turned into NaN."""
    return lambda *clients: blobs(clients or (SICK,))


@pytest.fixture(scope="session")
def settings() -> Callable[..., dict[str, Any]]:
    """The options of a row's short run."""

    def make(row: Row, **options: Any) -> dict[str, Any]:
        model = MODELS[options.pop("model", row.model)]
        return {**SHORT, "model": model, **row.options, **options}

    return make


@pytest.fixture(scope="session")
def battery(settings: Callable[..., dict[str, Any]]) -> Callable[..., Outcome]:
    """Run a row on a federation."""

    def start(row: Row, federation: Federation, **options: Any) -> Outcome:
        lose = options.pop("lose", ())
        return run_parts(row.text, federation, lose=lose, **settings(row, **options))

    return start


@pytest.fixture(scope="session")
def undisturbed(battery: Callable[..., Outcome], federation: Federation) -> Callable[[Row], Outcome]:
    """The row's short run with full participation, made once."""
    made: dict[str, Outcome] = {}

    def outcome(row: Row) -> Outcome:
        key = repr((row.text, row.model, row.options))
        if key not in made:
            made[key] = battery(row, federation)
        return made[key]

    return outcome
