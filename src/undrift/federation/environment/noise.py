"""Noise in labels and targets, and label permutation (concept shift), as seeded, pure functions of the labels.

    symmetric(ρ)      y → a uniformly drawn *other* class            pair(ρ)     y → y + 1 mod C
    constant(ρ, c)    y → c (a label c stays c)                      permute(s)  y → π_k(y) for a share s of the clients
    uneven([ρ, …])    symmetric, with a share ρ_k of its own for every client
    gaussian(σ)       y → y + σ · (the targets' deviation) · ε, ε ~ N(0, 1): numbers
    replace_tokens(ρ) y → a uniformly drawn *other* token, for a share ρ of the tokens to predict

`unit="sample"` changes exactly round(ρ·n) samples, `unit="client"` all samples of exactly round(ρ·N) clients. `when`
says whether the partition sees clean labels (after, the default: all clients are equally noisy) or noisy ones (before).
The trap of `before`: a partition by labels then collects the noise at some clients, and any method that ignores the
sizes wins mechanically. Test labels stay clean, except that a permuted client's test slice is permuted too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.samples import Ragged
from undrift.core.streams import numpy_stream

__all__ = ["constant", "gaussian", "pair", "permute", "replace_tokens", "symmetric", "uneven"]

Owners = Sequence[np.ndarray] | None


@dataclass(frozen=True)
class Symmetric:
    """A wrong label is uniform among the other classes."""

    rate: float
    unit: str = "sample"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("symmetric", "rate", self.rate, self.unit, self.when)

    def apply(self, labels: np.ndarray, owners: Owners, classes: int, stream: np.random.Generator) -> np.ndarray:
        _check_classes("symmetric", classes)
        chosen = _chosen(self, labels, owners, stream)
        noisy = labels.astype(np.int64)
        # A shift by 1 … C−1 mod C is a uniform draw among the other classes.
        noisy[chosen] = (noisy[chosen] + stream.integers(1, classes, size=len(chosen))) % classes
        return noisy


@dataclass(frozen=True)
class Uneven:
    """Symmetric noise with a rate of its own for every client: `rates` has one per client."""

    rates: Any
    unit: ClassVar[str] = "sample"
    when: ClassVar[str] = "after"

    def __post_init__(self) -> None:
        if not isinstance(self.rates, list | tuple | np.ndarray) or not len(self.rates):
            raise BadRequest(f"rates of uneven must be a list with one rate per client, not {self.rates!r}")
        for rate in self.rates:
            _check("uneven", "a rate", rate, self.unit, self.when)
        object.__setattr__(self, "rates", tuple(map(float, self.rates)))

    def apply(self, labels: np.ndarray, owners: Owners, classes: int, stream: np.random.Generator) -> np.ndarray:
        _check_classes("uneven", classes)
        held = _disjoint("uneven", labels, owners)
        if len(held) != len(self.rates):
            raise BadRequest(f"uneven has {len(self.rates)} rates for {len(held)} clients; give one each")
        noisy = labels.astype(np.int64)
        for shard, rate in zip(held, self.rates, strict=True):
            chosen = stream.permutation(shard)[: nearest(rate * len(shard))]
            noisy[chosen] = (noisy[chosen] + stream.integers(1, classes, size=len(chosen))) % classes
        return noisy


@dataclass(frozen=True)
class Pair:
    """A wrong label is the next class."""

    rate: float
    unit: str = "sample"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("pair", "rate", self.rate, self.unit, self.when)

    def apply(self, labels: np.ndarray, owners: Owners, classes: int, stream: np.random.Generator) -> np.ndarray:
        _check_classes("pair", classes)
        chosen = _chosen(self, labels, owners, stream)
        noisy = labels.astype(np.int64)
        noisy[chosen] = (noisy[chosen] + 1) % classes
        return noisy


@dataclass(frozen=True)
class Constant:
    """A wrong label is `cls`."""

    rate: float
    cls: int = 0
    unit: str = "sample"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("constant", "rate", self.rate, self.unit, self.when)
        if isinstance(self.cls, bool) or not isinstance(self.cls, int) or self.cls < 0:
            raise BadRequest(f"the class of constant must be a whole number of at least 0, not {self.cls!r}")

    def apply(self, labels: np.ndarray, owners: Owners, classes: int, stream: np.random.Generator) -> np.ndarray:
        if self.cls >= classes:
            raise BadRequest(
                f"constant sets labels to class {self.cls}, but there are {classes}; give one of 0…{classes - 1}"
            )
        noisy = labels.astype(np.int64)
        noisy[_chosen(self, labels, owners, stream)] = self.cls
        return noisy


@dataclass(frozen=True)
class Permute:
    """Concept shift: every affected client has its own permutation of the classes, never the identity."""

    share: float
    unit: str = "client"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("permute", "share", self.share, self.unit, self.when)
        if self.unit != "client":
            raise BadRequest(
                "permute permutes whole clients: its unit is client; for single samples use symmetric(rate)"
            )

    def permutations(self, clients: int, classes: int, stream: np.random.Generator) -> dict[int, np.ndarray]:
        """π_k of every affected client k. `apply` with the same stream uses the same permutations."""
        _check_classes("permute", classes)
        affected = np.sort(stream.permutation(clients)[: nearest(self.share * clients)])
        return {int(client): _moved(classes, stream) for client in affected}

    def apply(self, labels: np.ndarray, owners: Owners, classes: int, stream: np.random.Generator) -> np.ndarray:
        owners = _disjoint("permute", labels, owners)
        shifted = labels.astype(np.int64)
        for client, permutation in self.permutations(len(owners), classes, stream).items():
            shifted[owners[client]] = permutation[labels[owners[client]]]
        return shifted


@dataclass(frozen=True)
class Gaussian:
    """Normal noise on the targets of a regression, σ in units of their standard deviation; `rate` of them get some."""

    changes: ClassVar[str] = "numbers"
    sigma: float
    rate: float = 1.0
    unit: str = "sample"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("gaussian", "rate", self.rate, self.unit, self.when)
        number = isinstance(self.sigma, int | float | np.floating) and not isinstance(self.sigma, bool)
        if not number or not 0 <= self.sigma < math.inf:
            raise BadRequest(f"sigma of gaussian must be a finite number of at least 0, not {self.sigma!r}")

    def apply(self, targets: Any, owners: Owners, outputs: int, stream: np.random.Generator) -> Any:
        chosen = torch.from_numpy(_chosen(self, targets, owners, stream))
        noisy, spread = targets.clone(), targets.double().std(0, unbiased=False)
        drawn = torch.from_numpy(stream.standard_normal((len(chosen), *targets.shape[1:])))
        noisy[chosen] += (self.sigma * spread * drawn).to(noisy.dtype)
        return noisy


@dataclass(frozen=True)
class ReplaceTokens:
    """A share of the tokens to predict is replaced by other tokens. With unit=client all of a share of the clients."""

    changes: ClassVar[str] = "tokens"
    rate: float
    unit: str = "sample"
    when: str = "after"

    def __post_init__(self) -> None:
        _check("replace_tokens", "rate", self.rate, self.unit, self.when)

    def apply(self, targets: Any, owners: Owners, outputs: int, stream: np.random.Generator) -> Any:
        _check_classes("replace_tokens", outputs)
        if self.unit == "client":
            rows = _chosen(self, targets, owners, stream)
        else:
            rows = np.arange(len(targets)) if owners is None else np.concatenate(_disjoint("noise", targets, owners))
        places = _tokens_of(targets, np.sort(rows))
        if self.unit == "sample":
            places = places[stream.permutation(len(places))[: nearest(self.rate * len(places))]]
        values = (targets.values if isinstance(targets, Ragged) else targets.reshape(-1)).clone()
        shift = torch.from_numpy(stream.integers(1, outputs, size=len(places)))
        values[places] = (values[places] + shift) % outputs
        return (
            Ragged.made(values, targets.offsets, targets.pad)
            if isinstance(targets, Ragged)
            else values.view(targets.shape)
        )


def _tokens_of(targets: Any, rows: np.ndarray) -> torch.Tensor:
    """The places of all tokens of some sequences, in a row of all values. Padding is negative and no token."""
    if not isinstance(targets, Ragged):
        width = targets.shape[1]
        places = torch.from_numpy((rows[:, None] * width + np.arange(width)).reshape(-1))
        return places[targets.reshape(-1)[places] >= 0]
    return samples.places(targets, rows)


symmetric, uneven, pair, constant, permute = Symmetric, Uneven, Pair, Constant, Permute
gaussian, replace_tokens = Gaussian, ReplaceTokens
Noise = Symmetric | Uneven | Pair | Constant | Permute | Gaussian | ReplaceTokens


def before(noises: Sequence[Noise], labels: Any, classes: int, seed: int) -> Any:
    """The labels the partition sees: all noises with when="before", one after the other."""
    for number, noise in enumerate(noises):
        if noise.when == "before" and not isinstance(noise, Permute):
            labels = noise.apply(labels, None, classes, _stream(seed, number))
    return labels


def after(
    noises: Sequence[Noise], labels: Any, shards: Sequence[np.ndarray], classes: int, seed: int
) -> tuple[Any, dict[int, np.ndarray]]:
    """(the labels or targets the clients train on, the permuted clients' permutations of the classes)."""
    if sum(isinstance(noise, Permute) for noise in noises) > 1:
        raise BadRequest("noise names permute twice, but a client has one permutation of the classes; name it once")
    permutations: dict[int, np.ndarray] = {}
    for number, noise in enumerate(noises):
        if isinstance(noise, Permute):
            permutations = noise.permutations(len(shards), classes, _stream(seed, number))
        elif noise.when == "after":
            labels = noise.apply(labels, shards, classes, _stream(seed, number))
    return labels, permutations


def _stream(seed: int, number: int) -> np.random.Generator:
    return numpy_stream(seed, "noise", *[number] * (number > 0))


def nearest(value: float) -> int:
    """The nearest whole number, halves upwards: round() rounds 0.5 and 2.5 down."""
    return math.floor(value + 0.5)


def _check(noise: str, name: str, rate: object, unit: str, when: str) -> None:
    number = isinstance(rate, int | float | np.floating) and not isinstance(rate, bool)
    if not number or not 0 <= rate <= 1:  # type: ignore[operator]
        raise BadRequest(f"{name} of {noise} must be between 0 and 1, not {rate!r}")
    if unit not in ("sample", "client"):
        raise BadRequest(f"unit of {noise} must be sample or client, not {unit!r}")
    if when not in ("before", "after"):
        raise BadRequest(f"when of {noise} must be before or after the partition, not {when!r}")
    if unit == "client" and when == "before":
        raise BadRequest(f"{noise} cannot choose clients before there are any; use when=after, or unit=sample")


def _check_classes(noise: str, classes: int) -> None:
    if classes < 2:
        raise BadRequest(f"{noise} needs at least 2 classes to change a label, but there is {classes}")


def _chosen(
    noise: Symmetric | Pair | Constant | Gaussian | ReplaceTokens,
    labels: Any,
    owners: Owners,
    stream: np.random.Generator,
) -> np.ndarray:
    """The indices of the samples whose labels change."""
    if noise.unit == "client":
        held = _disjoint("noise per client", labels, owners)
        clients = np.sort(stream.permutation(len(held))[: nearest(noise.rate * len(held))])
        return np.concatenate([np.empty(0, dtype=np.int64), *(np.asarray(held[client]) for client in clients)])
    if owners is None:
        return stream.permutation(len(labels))[: nearest(noise.rate * len(labels))]
    # All clients equally noisy *and* the total exact: each client's share is ρ n_k rounded by largest remainder.
    held = _disjoint("noise", labels, owners)
    exact = noise.rate * np.array([len(shard) for shard in held], dtype=np.float64)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = max(0, nearest(float(exact.sum())) - int(counts.sum()))
    # Ties are broken at random, or the first clients would always get the odd sample.
    order = stream.permutation(len(held))
    counts[order[np.argsort((counts - exact)[order], kind="stable")[:missing]]] += 1
    drawn = [stream.permutation(shard)[:count] for shard, count in zip(held, counts, strict=True)]
    return np.concatenate([np.empty(0, dtype=np.int64), *drawn])


def _disjoint(noise: str, labels: Any, owners: Owners) -> Sequence[np.ndarray]:
    """The owners. Refuses clients that share samples: a shared label cannot be noisy for one client only."""
    if owners is None:
        raise BadRequest(f"{noise} needs clients, i.e. a partition first; use when=after")
    total = int(np.sum(owners.sizes)) if hasattr(owners, "sizes") else sum(len(shard) for shard in owners)
    if total > len(labels):
        raise BadRequest(
            f"{noise} cannot distinguish clients that share samples ({total} held of {len(labels)}); "
            "with resample use unit=sample, when=before"
        )
    return owners


def _moved(classes: int, stream: np.random.Generator) -> np.ndarray:
    """A uniformly drawn permutation other than the identity."""
    identity = np.arange(classes)
    for _ in range(64):
        permutation = stream.permutation(classes)
        if (permutation != identity).any():
            return permutation
    return np.roll(identity, 1)
