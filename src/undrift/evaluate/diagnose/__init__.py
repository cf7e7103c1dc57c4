"""Diagnostics: what the papers plot beside accuracy, on request (`--diagnose gradients+drift`), one file each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.references import described
from undrift.core.words import shown
from undrift.evaluate.diagnose.base import Diagnostic, Findings, RoundView, ServerWork, counter, observe_round
from undrift.evaluate.diagnose.bound import Bound
from undrift.evaluate.diagnose.confusion import Confusion
from undrift.evaluate.diagnose.cost import Cost
from undrift.evaluate.diagnose.drift import Drift
from undrift.evaluate.diagnose.embedding import Embedding
from undrift.evaluate.diagnose.features import Features
from undrift.evaluate.diagnose.gradients import Gradients
from undrift.evaluate.diagnose.hessian import Hessian
from undrift.evaluate.diagnose.landscape import Landscape
from undrift.evaluate.diagnose.objective import Objective
from undrift.evaluate.diagnose.ood import Ood

__all__ = ["NAMES", "Diagnostic", "Findings", "RoundView", "ServerWork", "counter", "named", "observe_round"]

NAMES: dict[str, type[Diagnostic]] = {
    one.name: one
    for one in (Gradients, Drift, Objective, Bound, Features, Embedding, Cost, Landscape, Hessian, Ood, Confusion)
}
NO_MODEL_NEEDED = (
    "drift",
    "cost",
)  # these look at clients; all others at a global model, which private entries preclude


def named(given: Any, with_ood: bool = False) -> list[Diagnostic]:
    """`gradients+hessian(samples=500)`, a diagnostic, or a list of either; naming an OOD set asks for its diagnostic."""
    if given is None:
        found = []
    elif isinstance(given, str):
        found = [text.build("diagnostic", call, NAMES) for _, call in text.parse_method(given)]
        if other := [one for one in found if not all(hasattr(one, name) for name in ("check", "name"))]:
            raise BadRequest(f"--diagnose must name diagnostics, and {shown(given)} gives {described(other[0])}")
    else:
        several = given if isinstance(given, Sequence) else [given]
        found = [one for each in several for one in (named(each) if isinstance(each, str) else [each])]
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadRequest(f"the diagnostic {twice[0]} is asked for twice; name it once")
    if with_ood and "ood" not in names:
        found.append(Ood())
    return found
