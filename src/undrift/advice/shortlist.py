"""From a diagnosis to the methods worth a race: the rules of `rules.py`, cut by what the run and the user allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from undrift.advice.findings import Diagnosis
from undrift.advice.rules import COMPOSITIONS, PARAMETERS, RULES, UNTESTED, Rule
from undrift.contract.declare import Number, size_in_bytes
from undrift.contract.parts import defines
from undrift.core.errors import BadRequest
from undrift.experiment.options import FIELDS, Options, from_keywords
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation
from undrift.methods.describe import describe
from undrift.methods.published import PUBLISHED

EACH = 2  # remedies per axis of findings
OF_THEIR_OWN = 4  # personal methods: no finding says which of them helps
PLAIN = ("fedavg", "fedavg-uniform")  # never cut: every answer is compared with them
ORDER = (
    "sampling",
    "objective",
    "personalize",
    "combine",
    "server",
    "private",
    "weighting",
)  # in the text of a composition
# Where a run runs and what it records has nothing to do with whether a method applies.
ELSEWHERE = (
    "out", "force", "track", "engine", "workers", "ray_address", "diagnose", "ood", "metrics", "stop_at", "stop_at_epsilon", "faults",
    "unseen", "evaluate_every", "evaluate_at", "evaluate_clients", "tolerate",
)  # fmt: skip


@dataclass(frozen=True)
class Constraints:
    """What the user allows."""

    memory: float | None = None  # MB of a client's memory for vectors of the model's size
    # What may leave a site beside counts and losses: the model, single numbers too, or (None) whatever a method declares.
    may_leave: Literal["model", "model+numbers"] | None = None
    dp: bool = False  # the method must work with differential privacy for clients
    personal: Literal["no", "yes", "either"] = "no"  # whether clients may end with models of their own


@dataclass(frozen=True)
class Candidate:
    """A method to race."""

    method: str  # as it is typed: flood+scaffold@bound
    axis: str  # "plain", one of `findings.AXES`, "personal", "composition", or "all"
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
    rules: Sequence[Rule] = RULES,
) -> Shortlist:
    """The methods to race on this federation: plain averaging, remedies for every axis that the diagnosis points to, and their
    composition. `everything` takes every published method that applies."""
    asked = probe_options(options, constraints)
    found: dict[str, Candidate] = {}
    left_out: dict[str, str] = {}

    def applies(method: str) -> bool:
        if method in found or method in left_out:
            return method in found
        reason = refusal(method, asked, federation, constraints)
        if reason:
            left_out[method] = reason
        return not reason

    first = list[str]()  # the first remedy of every axis, for the composition
    for axis in ("plain", *diagnosis.axes, *(["personal"] if constraints.personal != "no" else [])):
        fitting = [
            rule for rule in rules if rule.axis == axis and (not rule.only or rule.only in conditions(diagnosis))
        ]
        taken = [rule for rule in fitting if axis == "plain" or applies(rule.method)]
        taken = taken[: OF_THEIR_OWN if axis == "personal" else EACH]
        for rule in taken:
            found.setdefault(rule.method, candidate(rule))
        first += [rule.method for rule in taken[:1] if axis not in ("plain", "personal")]
    for text in compositions(first, [name for name, one in found.items() if one.axis != "personal"]):
        if applies(text):
            found[text] = composed(text)
    if everything:
        for name in PUBLISHED:
            if name not in found and applies(name):
                found[name] = candidate(Rule("all", name, "every method that applies was asked for"))
    return Shortlist(tuple(found.values()), tuple(left_out.items()))


def conditions(diagnosis: Diagnosis) -> set[str]:
    """What rules may depend on."""
    by_name = {finding.name: finding for finding in diagnosis.findings}
    noise, classes = by_name.get("label_noise"), by_name.get("classes_per_client")
    found = {"few classes"} if classes is not None and classes.axis else set[str]()
    if noise is not None and noise.axis:
        found.add("gathered" if noise.details.get("gathered") else "spread")
    return found


def candidate(rule: Rule) -> Candidate:
    parameter, values = PARAMETERS.get(rule.method, (None, ()))
    return Candidate(rule.method, rule.axis, parameter, values, rule.reason, rule.evidence)


# ---- compositions --------------------------------------------------------------------------------------------


def compositions(first: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    """One remedy per axis together (the remedies of the only axis, if there is one), and compositions that were measured, if all their
    parts are on the list."""
    names = [name for name in found if name not in PLAIN]
    chosen = list(dict.fromkeys(first))
    text = joined(chosen if len(chosen) > 1 else names)
    if text is not None:
        yield text
    for known in COMPOSITIONS:
        if known != text and set(known.replace("@", "+").split("+")) <= set(names):
            yield known


def joined(names: Iterable[str]) -> str | None:
    """The text of these methods together; one whose axis is taken is left out. None if fewer than two remain."""
    taken, kept = set[str](), list[tuple[int, str, str]]()
    for name in names:
        axes = set(describe(name)["axes"])
        if axes and not axes & taken:
            taken |= axes
            kept.append((min(map(ORDER.index, axes)), name, "@" if axes == {"weighting"} else "+"))
    if len(kept) < 2:
        return None
    return "".join(mark + name for _, name, mark in sorted(kept)).lstrip("+")


def composed(text: str) -> Candidate:
    kept = COMPOSITIONS.get(text)
    reason = "the remedies of several findings together: they act at different places of a round"
    return Candidate(text, "composition", None, (), reason, UNTESTED if kept is None else kept.text)


# ---- what cuts -----------------------------------------------------------------------------------------------


def probe_options(options: Mapping[str, Any], constraints: Constraints) -> Options:
    """The options under which a method must be able to start."""
    given = {name: value for name, value in options.items() if name in FIELDS and name not in (*ELSEWHERE, "method")}
    if constraints.dp and not given.get("upload"):
        given["upload"] = "dp(noise=1)"
    return from_keywords({**given, "out": False})


def refusal(method: str, asked: Options, federation: Federation, constraints: Constraints) -> str:
    """Why a method is not raced here; empty if it may be."""
    try:
        setup = prepare(replace(asked, method=method, unseen=0.0), federation)
    except BadRequest as error:
        return str(error)
    own = bool(setup.method.on("personalize") or setup.method.on("private"))
    if own and constraints.personal == "no":
        return "it gives clients models of their own, which are not wanted"
    if not own and constraints.personal == "yes" and method not in PLAIN:
        return "it gives all clients one model, and personal ones are wanted"
    if sent := forbidden(setup, constraints):
        return f"it sends {sent}, and only {constraints.may_leave} may leave a site"
    needed = client_megabytes(setup)
    if constraints.memory is not None and needed > constraints.memory:
        return f"it needs about {needed:.3g} MB at a client, more than {constraints.memory:g}"
    return ""


def forbidden(setup: Setup, constraints: Constraints) -> str:
    """What a method declares to send and must not."""
    if constraints.may_leave is None:
        return ""
    return ", ".join(
        f"{name} ({kind})"
        for part in setup.method.parts
        for name, kind in part.uplink.items()
        if not (constraints.may_leave == "model+numbers" and isinstance(kind, Number))
    )


def client_megabytes(setup: Setup) -> float:
    """Vectors of the model's size that a client holds while it trains: the received and the trained model, the gradient, the
    optimizer's, one for every part that keeps state, and the messages. Activations are the network's and not counted."""
    plan = setup.plan
    vectors = 3 + (2 if plan.optimizer == "adam" else 1 if plan.momentum else 0)
    vectors += sum(defines(part, "init_client") for part in plan.method.parts)
    messages = sum(size_in_bytes(part.uplink, plan) + size_in_bytes(part.downlink, plan) for part in plan.method.parts)
    return (4 * plan.layout.n * vectors + messages) / 1e6
