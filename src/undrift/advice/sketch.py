"""A sketch of a site's data: the counts and scores that the site agrees to send, and nothing else. From the sketches of all
sites a federation of the same shape is made on public data, so that methods can be raced before any site trains.

A sketch never holds a sample. What it may tell is the site's choice (`Policy`): label counts and the share of wrong labels
can be left out, and all counts can be rounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from undrift.advice import wrong_labels
from undrift.advice.diagnosis import WRONG_LABELS
from undrift.advice.drawn import as_table, drawn
from undrift.advice.neighbours import neighbours
from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest
from undrift.core.files import read_json
from undrift.core.schema import LARGEST, Count, Name, check, setting
from undrift.federation.dealing import TEST_SHARE, federate, load_data
from undrift.federation.federation import Federation
from undrift.federation.partition import largest_remainder
from undrift.store.durable import write_file

VERSION: Literal[1] = 1


@dataclass(frozen=True)
class Policy:
    """What a site agrees to tell."""

    labels: bool = True  # how many samples of each class
    wrong_labels: bool = True  # the estimated share of wrong labels
    round_to: int = 1  # all counts are rounded to multiples of this

    def __post_init__(self) -> None:
        if isinstance(self.round_to, bool) or not isinstance(self.round_to, int) or self.round_to < 1:
            raise BadRequest(f"counts are rounded to a whole number of at least 1, not to {self.round_to!r}")


@dataclass(frozen=True)
class Sketch:
    """The keys of a sketch."""

    undrift_sketch: Literal[1] = setting(..., "version of the format: 1")
    task: Name = setting(..., "name of the task")
    classes: Count = setting(..., "number of classes, or of the network's outputs")
    shape: list[Count] | None = setting(
        ..., "shape of one sample, channels first; null where samples have several columns"
    )
    samples: Count = setting(..., "number of training samples")
    rounded_to: Count = setting(1, "counts are rounded to multiples of this")
    label_counts: list[Annotated[int, Ge(0), Le(LARGEST)]] | None = setting(
        None, "samples of each class; null if the site does not tell"
    )
    wrong_labels: Annotated[float, Ge(0), Le(1)] | None = setting(
        None, "estimated share of wrong labels; null if the site does not tell, or cannot"
    )
    name: Name | None = setting(None, "what the site is called")


@dataclass(frozen=True)
class Twin:
    """A federation on public data that has the shape of the sketched one: options of `undrift run`, and what was done."""

    options: dict[str, Any]
    sentence: str


# ---- at a site -----------------------------------------------------------------------------------------------


def sketch(federation: Federation, policy: Policy | None = None, name: str | None = None) -> dict[str, Any]:
    """The sketch of a site: all training samples of its federation together."""
    policy = policy or Policy()
    shape = federation.shape
    counts = np.sum([federation.counts(client) for client in range(federation.clients)], axis=0)
    told = Sketch(
        VERSION,
        federation.task.name,
        federation.classes,
        None if isinstance(shape, dict) else list(shape),
        max(1, rounded(federation.total, policy.round_to)),
        policy.round_to,
        [rounded(int(count), policy.round_to) for count in counts] if policy.labels and federation.has_labels else None,
        share_of_wrong_labels(federation) if policy.wrong_labels else None,
        name,
    )
    return asdict(told)


def rounded(count: int, to: int) -> int:
    """The nearest multiple, halves upwards."""
    return (count + to // 2) // to * to


def share_of_wrong_labels(federation: Federation) -> float | None:
    """To two digits; None where it cannot be measured."""
    some = drawn(federation)
    table = as_table(some.x)
    if table is None or not federation.has_labels or len(some) < wrong_labels.LEAST:
        return None
    with one_thread():
        called = federation.class_of(some.y).numpy()
        share = wrong_labels.wrong_labels(neighbours(table), called, some.client, federation.classes).share
    return None if share is None else round(share, 2)


def write_sketch(
    path: str | Path, federation: Federation, policy: Policy | None = None, name: str | None = None
) -> dict[str, Any]:
    """Write the sketch of a site as JSON, and return what was written."""
    told = sketch(federation, policy, name)
    write_file(Path(path), (json.dumps(told, indent=1) + "\n").encode())
    return told


# ---- at the server -------------------------------------------------------------------------------------------


def read_sketches(paths: Sequence[str | Path]) -> list[Sketch]:
    """The sketches in these files. They must be of one task with the same classes."""
    found = [read_sketch(Path(path)) for path in paths]
    if len(found) < 2:
        raise BadRequest(f"{len(found)} sketch is no federation; give one file per site, at least 2")
    for path, one in zip(paths, found):
        if (one.task, one.classes) != (found[0].task, found[0].classes):
            raise BadRequest(
                f"{path} is of {one.task} with {one.classes} classes, {paths[0]} of {found[0].task} with "
                f"{found[0].classes}; sketch the same task everywhere, and name all classes in `classes` of every site's .npz: a "
                "site may have no sample of the last ones"
            )
    return found


def read_sketch(path: Path) -> Sketch:
    table = read_json(path)
    version = table.get("undrift_sketch") if isinstance(table, Mapping) else None
    if version is None:
        raise BadRequest(f"{path} is not a sketch; write one with `undrift advise DATA --sketch FILE`")
    if isinstance(version, int) and version > VERSION:
        raise BadRequest(f"{path} is a sketch of version {version}, and this Undrift reads {VERSION}; update it")
    found = Sketch(**check(Sketch, table, str(path)))
    if found.label_counts is not None and len(found.label_counts) != found.classes:
        raise BadRequest(
            f"{path} has {len(found.label_counts)} label counts for {found.classes} classes; give one each"
        )
    return found


def like(sketches: Sequence[Sketch], data: str = "digits", seed: int = 0) -> Twin:
    """The options of a federation of this shape on public data: the same relative sizes, label shares and shares of wrong labels
    where they are told, else those of the public data, and none."""
    first = sketches[0]
    if first.task != "classification":
        raise BadRequest(f"a federation like sketches of {first.task} cannot be made; only of classification")
    source, _ = load_data(data, TEST_SHARE, seed, None, None, {})
    held = np.bincount(np.asarray(source.y_train, dtype=np.int64), minlength=len(source.classes))
    if len(held) < first.classes:
        raise BadRequest(
            f"the sites have {first.classes} classes, {data} has {len(held)}; choose data with at least as many"
        )
    wanted = np.array([label_shares(one, held[: first.classes]) * one.samples for one in sketches])
    # No class may be asked for more often than there are samples of it.
    factor = min(1.0, float((held[: first.classes] / np.maximum(wanted.sum(0), 1e-9)).min()))
    counts = np.array([largest_remainder(row, max(1, int(factor * row.sum()))) for row in wanted])
    counts = within(counts, held[: first.classes])
    noise = [one.wrong_labels if (one.wrong_labels or 0) >= WRONG_LABELS else 0.0 for one in sketches]
    options = {"data": data, "partition": f"class_counts({counts.tolist()})", "clients": len(sketches)}
    if any(noise):
        options["noise"] = f"uneven({noise})"
    return Twin(options, sentence(sketches, data, factor, noise))


def label_shares(one: Sketch, public: np.ndarray) -> np.ndarray:
    counts = public if not one.label_counts or not sum(one.label_counts) else np.array(one.label_counts)
    return counts / counts.sum()


def within(counts: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The counts without the few samples that rounding asks for beyond what is there: the largest client gives them up."""
    counts = counts.copy()
    for column in range(counts.shape[1]):
        while counts[:, column].sum() > held[column]:
            counts[counts[:, column].argmax(), column] -= 1
    return counts


def sentence(sketches: Sequence[Sketch], data: str, factor: float, noise: Sequence[float | None]) -> str:
    """What the twin has of the sites, and what it has not."""
    told = sum(one.label_counts is not None for one in sketches)
    scaled = "their sizes" if factor == 1 else f"{100 * factor:.0f} % of their sizes, which is all that {data} has"
    labels = "their label shares" if told == len(sketches) else (
        f"the label shares of {told} sites that tell them, and those of {data} elsewhere" if told else f"the label shares of {data}"
    )  # fmt: skip
    wrong = f", and wrong labels at {sum(map(bool, noise))} of them" if any(noise) else ""
    return (
        f"this is a simulation on {data}, not on the sites' data: {len(sketches)} clients with {scaled}, {labels}{wrong}. "
        "Inputs and how hard they are come from the public data"
    )


def federation_like(
    sketches: Sequence[Sketch], data: str = "digits", seed: int = 0, validation: float = 0.0
) -> Federation:
    """The federation of `like`."""
    return federate(**like(sketches, data, seed).options, seed=seed, validation=validation)
