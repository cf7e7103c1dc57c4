"""From a diagnosis to the methods worth a race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from undrift.advice.findings import Diagnosis
from undrift.federation.federation import Federation


@dataclass(frozen=True)
class Constraints:
    """What the user allows."""

    memory: float | None = None  # MB of training state at a client
    may_leave: str | None = None  # what may leave a site: "model", "model+numbers", or None for everything
    dp: bool = False  # the method must work with differential privacy
    personal: Literal["no", "yes", "either"] = "no"  # whether clients may end with models of their own


@dataclass(frozen=True)
class Candidate:
    """A method to race."""

    method: str  # as it is typed: flood+scaffold@bound
    axis: str  # "plain", one of `findings.AXES`, "composition", or "all"
    parameter: str | None  # its one main parameter
    values: tuple[Any, ...]  # of the parameter, to race
    reason: str
    evidence: str  # the kept result it rests on, or "untested"


@dataclass(frozen=True)
class Shortlist:
    """The methods to race, and those left out with the reason."""

    candidates: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...]


NONE = Constraints()  # nothing is forbidden but personal models


def shortlist(
    diagnosis: Diagnosis,
    options: Mapping[str, Any],
    federation: Federation,
    constraints: Constraints = NONE,
    everything: bool = False,
) -> Shortlist:
    """The methods to race on this federation. `everything` takes every published method that applies."""
    return Shortlist(
        (
            Candidate("fedavg", "plain", None, (), "plain averaging, by size", "untested"),
            Candidate("fedavg-uniform", "plain", None, (), "plain averaging, every client alike", "untested"),
        ),
        (),
    )
