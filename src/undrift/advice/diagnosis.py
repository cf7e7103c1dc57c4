"""Measure a federation: how its clients differ, and what that suggests. Test data are never looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import entr

from undrift.advice import feature_skew, wrong_labels
from undrift.advice.drawn import Drawn, as_table, drawn
from undrift.advice.findings import Diagnosis, Finding
from undrift.advice.neighbours import Neighbours, neighbours
from undrift.advice.one_round import one_round
from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.experiment.options import Options
from undrift.federation.federation import Federation
from undrift.report.label_distribution import MOST, gini, mean_hellinger
from undrift.round import selection

# From here on a finding points to remedies; its `strength` is 1 there.
LABEL_SKEW = 0.15  # Hellinger distance above chance
QUANTITY_SKEW = 0.3  # Gini
FEATURE_SKEW = 0.2
WRONG_LABELS = 0.05
DRIFT = 1.5  # times as far as on shuffled data


def diagnose(
    options: Mapping[str, Any], federation: Federation, on_message: Callable[[str], None] = lambda sentence: None
) -> Diagnosis:
    """Everything that can be measured about this federation. `options` are those of `undrift run`; of them those about the
    network and local training count here."""
    if federation.clients < 2:
        raise BadRequest(
            f"{federation.name} has one client, and a diagnosis compares clients; give at least 2 (--clients 2)"
        )
    some = drawn(federation)
    if not some.whole:
        on_message(
            f"inputs are compared on {len(some)} samples of {len(some.clients)} clients, of "
            f"{federation.total} samples of {federation.clients} clients"
        )
    findings = [*labels(federation), quantity_skew(federation)]
    on_message("comparing inputs and labels")
    with one_thread():
        findings += inputs(some, federation)
    on_message("training one round, and one on shuffled data")
    findings += training(options, federation)
    return Diagnosis((*findings, clients(federation)))


# ---- labels and sizes ----------------------------------------------------------------------------------------


def labels(federation: Federation) -> Iterator[Finding]:
    """Label skew and classes per client."""
    if not federation.has_labels:
        without = f"cannot be measured: the task {federation.task.name} has no classes"
        yield Finding("label_skew", None, f"label skew {without}")
        yield Finding("classes_per_client", None, f"classes per client {without}")
        return
    counts = np.array([federation.counts(client) for client in described(federation)])
    counts = counts[counts.sum(1) > 0]
    shares = counts / counts.sum(1, keepdims=True)
    value, chance = mean_hellinger(shares), by_chance(counts, federation.seed)
    skewed = value - chance > LABEL_SKEW
    yield Finding(
        "label_skew", value,
        f"label skew {value:.2f}: the mean Hellinger distance of the clients' label shares, {chance:.2f} by chance "
        "(0: alike, 1: no class in common)",
        "remedies for label skew" if skewed else f"no remedy less than {LABEL_SKEW} above chance",
        "label skew" if skewed else None,
        {"strength": max(0.0, value - chance) / LABEL_SKEW, "by_chance": chance, "class_counts": counts[:100].tolist()},
    )  # fmt: skip
    effective = np.exp(entr(shares).sum(1))
    few = skewed and float(effective.mean()) < federation.classes / 2
    yield Finding(
        "classes_per_client", float(effective.mean()),
        f"effective classes per client {effective.mean():.1f} of {federation.classes} (exp of the entropy of its labels; "
        f"{effective.min():.1f} … {effective.max():.1f})",
        "a restricted or calibrated softmax, or personal models" if few else "",
        "label skew" if few else None,
        {"by_client": [round(float(one), 3) for one in effective[:100]]},
    )  # fmt: skip


def described(federation: Federation) -> range:
    """Every client, or as many evenly spaced ones as can be read."""
    return range(0, federation.clients, -(-federation.clients // MOST))


def by_chance(counts: np.ndarray, seed: int) -> float:
    """The Hellinger distance of clients of these sizes that draw their labels from all clients' shares."""
    stream, pooled = numpy_stream(seed, "advice", 2), counts.sum(0) / counts.sum()
    dealt = np.array([stream.multinomial(size, pooled) for size in counts.sum(1)])
    return mean_hellinger(dealt / dealt.sum(1, keepdims=True))


def quantity_skew(federation: Federation) -> Finding:
    value = gini(federation.sizes)
    skewed = value > QUANTITY_SKEW
    return Finding(
        "quantity_skew", value,
        f"quantity skew {value:.2f}: the Gini coefficient of the sizes (0: equal, 1: one client has all)",
        "weights that do not follow the size" if skewed else f"no remedy below {QUANTITY_SKEW}",
        "quantity skew" if skewed else None,
        {"strength": value / QUANTITY_SKEW, "sizes": federation.sizes[:100].tolist()},
    )  # fmt: skip


def clients(federation: Federation) -> Finding:
    sizes = federation.sizes
    least, median = int(sizes.min()), int(np.median(sizes))
    small = median < 20
    return Finding(
        "clients", float(federation.clients),
        f"{federation.clients} clients with {least} … {int(sizes.max())} samples, median {median}",
        "few local epochs: a client with few samples overfits" if small else "",
        details={"total": federation.total, "least": least, "median": median, "most": int(sizes.max())},
    )  # fmt: skip


# ---- inputs --------------------------------------------------------------------------------------------------


def inputs(some: Drawn, federation: Federation) -> Iterator[Finding]:
    """Feature skew and wrong labels, from the inputs of the drawn samples."""
    table = as_table(some.x)
    why = (
        "its inputs are tokens or sequences, which have no common axes" if table is None
        else f"{len(some)} samples are too few, {wrong_labels.LEAST} are needed" if len(some) < wrong_labels.LEAST
        else ""
    )  # fmt: skip
    if table is None or why:
        yield Finding("feature_skew", None, f"feature skew cannot be measured: {why}")
        yield Finding("label_noise", None, f"the share of wrong labels cannot be measured: {why}")
        return
    near, called = neighbours(table), federation.class_of(some.y).numpy()
    kept = np.ones(len(some), dtype=bool)
    noise = Finding(
        "label_noise", None,
        f"the share of wrong labels cannot be measured: the task {federation.task.name} has no classes",
    )  # fmt: skip
    if federation.has_labels:
        found = wrong_labels.wrong_labels(near, called, some.client, federation.classes)
        noise, kept = label_noise(found, federation), found.agrees
    yield skew_of_inputs(near, called, some, kept, federation)
    yield noise


def skew_of_inputs(
    near: Neighbours, called: np.ndarray, some: Drawn, kept: np.ndarray, federation: Federation
) -> Finding:
    seen = near.points[kept], called[kept], some.client[kept]
    value = feature_skew.feature_skew(*seen)
    given = "given the class" if federation.has_labels else "over all samples, because there are no classes"
    if value is None:
        return Finding(
            "feature_skew", None,
            f"feature skew cannot be measured: no class is at two clients with {feature_skew.LEAST} samples each",
        )  # fmt: skip
    chance = feature_skew.by_chance(*seen, federation.seed) if value > FEATURE_SKEW else 0.0
    needed = max(FEATURE_SKEW, 2 * chance)
    skewed = value > needed
    return Finding(
        "feature_skew", value,
        f"feature skew {value:.2f}: how well a classifier tells two clients apart by their inputs, {given} "
        "(0: not at all, 1: always)",
        "private normalisation layers, or personal models" if skewed else f"no remedy below {needed:.2g}",
        "feature skew" if skewed else None,
        {"strength": value / needed, "by_chance": chance},
    )  # fmt: skip


def label_noise(found: wrong_labels.WrongLabels, federation: Federation) -> Finding:
    details: dict[str, Any] = {"known": round(found.known, 4)}
    if found.unknown:
        return unknown_noise(found, federation, details)
    if found.share is None:
        return Finding(
            "label_noise", None,
            f"the share of wrong labels cannot be measured: samples that look alike have the same class too seldom "
            f"({percent(found.known)} of the time, {percent(wrong_labels.KNOWN)} are needed)", details=details,
        )  # fmt: skip
    details["by_client"] = {federation.client_name(one): round(share, 4) for one, share in found.by_client.items()}
    details["strength"] = found.share / WRONG_LABELS
    if found.share < WRONG_LABELS:
        return Finding(
            "label_noise", found.share, f"wrong labels about {100 * found.share:.1f} %, which may be none", "no remedy",
            details=details,
        )  # fmt: skip
    worst = gathered(found, federation)
    some = ", ".join(f"{federation.client_name(one)} ({percent(found.by_client[one])})" for one in worst[:5])
    where = f", gathered at {some}{', …' * (len(worst) > 5)}" if worst else ", at all clients alike"
    details["gathered"] = bool(worst)
    return Finding(
        "label_noise", found.share, f"wrong labels about {percent(found.share)}{where}",
        "weights that fall with the loss, or sample weights", "wrong labels", details,
    )  # fmt: skip


def unknown_noise(found: wrong_labels.WrongLabels, federation: Federation, details: dict[str, Any]) -> Finding:
    """Labels contradict each other, and nobody says which are right: remedies are raced, and no share is given."""
    return Finding(
        "label_noise", None,
        f"the share of wrong labels cannot be known: at {named(found.unknown, federation)} samples that look alike have no label in "
        "common, and no other client says what is right",
        "weights that fall with the loss, or sample weights", "wrong labels",
        {**details, "unknown": [federation.client_name(one) for one in found.unknown], "gathered": True, "strength": 1.0},
    )  # fmt: skip


def named(clients: Sequence[int], federation: Federation, most: int = 5) -> str:
    some = ", ".join(federation.client_name(one) for one in clients[:most])
    return f"{some}{', …' * (len(clients) > most)}"


def gathered(found: wrong_labels.WrongLabels, federation: Federation) -> list[int]:
    """The clients with far more wrong labels than the mean, the worst first; none unless they have most of all wrong labels."""
    assert found.share is not None
    wrong = {one: share * int(federation.sizes[one]) for one, share in found.by_client.items()}
    worst = [one for one, share in found.by_client.items() if share > max(0.5, found.share + 0.3)]
    most = sum(wrong[one] for one in worst) > sum(wrong.values()) / 2
    return sorted(worst, key=lambda one: -found.by_client[one]) if most else []


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def figure(value: float) -> str:
    """To two digits, large ones to whole numbers."""
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


# ---- training ------------------------------------------------------------------------------------------------


def training(options: Mapping[str, Any], federation: Federation) -> Iterator[Finding]:
    """Drift, alignment and the cost of a round."""
    own, mixed = one_round(options, federation)
    times = own.drift / mixed.drift if mixed.drift > 0 else 1.0
    drifts = times > DRIFT
    yield Finding(
        "drift", times,
        f"drift {times:.1f} times that of shuffled data: after a round the clients' updates are {own.drift:.2f} of their mean's "
        f"length away from it, {mixed.drift:.2f} when shuffled",
        "remedies for drift" if drifts else f"no remedy below {DRIFT} times",
        "drift" if drifts else None,
        {"strength": max(0.0, times - 1) / (DRIFT - 1), "relative": own.drift, "shuffled": mixed.drift},
    )  # fmt: skip
    yield Finding(
        "alignment", own.alignment,
        f"alignment {own.alignment:.2f}: the mean cosine of two clients' gradients after a round, "
        f"{mixed.alignment:.2f} when shuffled",
        details={"shuffled": mixed.alignment},
    )  # fmt: skip
    yield round_cost(options, federation, own.seconds / own.samples, own.parameters)


def round_cost(
    options: Mapping[str, Any], federation: Federation, seconds_per_sample: float, parameters: int
) -> Finding:
    """The time of a round in this process, and what it sends."""
    chosen = selection.chosen(
        options.get("selection") or Options.selection, options.get("cohort"), federation.clients, 1
    )
    cohort = selection.expected_cohort(chosen, federation.clients) or federation.clients  # of a user's selection: all
    seconds = cohort * federation.total / federation.clients * seconds_per_sample
    megabytes = 4 * parameters * cohort / 1e6
    return Finding(
        "round_cost", seconds,
        f"a round with {cohort:g} clients takes about {figure(seconds)} s in one process, and {figure(megabytes)} MB travel each way",
        details={"cohort": cohort, "megabytes": megabytes, "parameters": parameters},
    )  # fmt: skip
