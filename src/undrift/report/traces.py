"""Every note of a record as a line of text and as a figure.

`traces(query)` reads the table `notes`. `STYLES` says how a note is drawn, by axis and name. A note that is not listed
there is drawn by the type of its values (a number, a list, a dict, a text), so a part of your own needs no entry.
Nothing is computed again: the figures show the recorded values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.evaluate.views import Query
from undrift.report.moves import members_text
from undrift.store.record import ClientNames, client_names

if TYPE_CHECKING:
    from undrift.federation.federation import Federation

NoteValues = dict[int, dict[int | None, Any]]  # round -> client (None: the server) -> value


@dataclass(frozen=True)
class Style:
    """How a note is drawn."""

    title: str
    kind: str = ""  # a key of trace_figures.DRAW; "": by the type of the values
    beside: str = ""  # a second note in the same figure
    over: str = ""  # the note with the x axis, the same for all clients


STYLES = {
    "sampling.scores": Style("confidence scores", "quantiles"),
    "sampling.tau": Style("τ: samples below it are weighted"),
    "sampling.lambda": Style("λ: the weight of samples below τ"),
    "sampling.weighted": Style("share of samples below τ"),
    "sampling.nonfinite": Style("scores that were not finite"),
    "sampling.guarded": Style("scores that a guard changed"),
    "sampling.S_mid": Style("S_mid: the loss above which samples are biased"),
    "sampling.biased": Style("|V|/n: share of biased samples"),
    "sampling.biased_labels": Style("biased samples by class", "counts"),
    "sampling.biased_samples": Style("biased samples of the surveyed client", "members"),
    "sampling.survey": Style("loss against uncertainty", "points"),
    "sampling.enlarged_from": Style("unbiased samples where they were too few"),
    "sampling.picked": Style("samples trained on"),
    "personalize.gamma": Style("γ: share of the client's own model"),
    "personalize.alpha": Style("α: share of the personal model"),
    "personalize.weights": Style("shares of other clients' models", "mixture"),
    "weighting.weight": Style("weight in the mean"),
    "weighting.loss": Style("training loss, all local epochs"),
    "weighting.last_loss": Style("training loss, last local epoch"),
    "weighting.phi": Style("φ: mean confidence of the trained model"),
    "weighting.guarded": Style("φ that are not positive, so that a guard acts"),
    "weighting.m": Style("m: mean of X (the loss to its moment)"),
    "weighting.v": Style("v: variance of X"),
    "weighting.u": Style("bounds u and l over the distance δ", "curve", beside="l", over="delta"),
    "weighting.eta": Style("η: width of the bounds, summed over δ"),
    "weighting.mean_loss": Style("mean of the bounded loss over M"),
    "weighting.sqrt_v": Style("√v over its largest value"),
    "weighting.distance": Style("divergence of the labels from uniform"),
    "weighting.accuracy": Style("accuracy on the proxy set"),
    "objective.mu": Style("μ: strength of the proximal term"),
    "objective.capped": Style("the proximal strength of clients that are too small"),
    "combine.weight": Style("weight used instead"),
    "combine.gamma": Style("γ: factor that shrinks the mean"),
    "combine.proxy_loss": Style("loss on the proxy set while weights are learned", "curve"),
    "combine.moved": Style("hidden units that were permuted"),
    "combine.steps": Style("normalised number of steps"),
    "combine.bound": Style("length above which an update is shortened"),
    "combine.factor": Style("factor that shortens an update"),
    "combine.age": Style("age of the model that is used, in rounds"),
    "server.factor": Style("length of the server's step"),
    "sampling.sample_epsilon": Style("ε of a client's samples so far"),
    "upload.epsilon": Style("ε so far"),
    "upload.norm": Style("length of the update before clipping"),
    "upload.clip": Style("the bound on an update's length"),
    "upload.bytes": Style("bytes of the update on the wire"),
    "upload.privacy": Style("what ε says"),
}


@dataclass(frozen=True)
class Trace:
    """One note of one part over the rounds."""

    part: str
    name: str
    style: Style  # its kind is set
    values: NoteValues
    beside: NoteValues | None = None
    over: NoteValues | None = None
    names: ClientNames = field(default_factory=ClientNames)

    @property
    def key(self) -> str:
        return f"{self.part}.{self.name}"

    @property
    def figure(self) -> Any:
        """A plotly figure; None for a note of texts."""
        from undrift.report.trace_figures import DRAW

        return DRAW[self.style.kind](self) if self.style.kind in DRAW else None

    @property
    def text(self) -> str:
        """The values in one line, or in one line per fact where the note is compared with facts."""
        return TEXT[self.style.kind](self)


class Traces(dict[str, Trace]):
    """Traces by `axis.part.name`. `print` shows them as sparklines, `write` writes a page."""

    def __str__(self) -> str:
        lines = []
        for part in dict.fromkeys(trace.part for trace in self.values()):
            lines.append(part)
            for trace in self.values():
                if trace.part == part:
                    first, *more = trace.text.splitlines()
                    lines += [f"  {trace.style.title:<48} {first}", *(f"  {'':<48} {line}" for line in more)]
        return "\n".join(lines) or "the parts of this run recorded no notes"

    __repr__ = __str__

    def sections(self) -> list[tuple[str, Any]]:
        """Sections for report/page.py: (id, figure) of each trace, or (id, text) of a note of texts."""
        shown = [(key, trace.figure or f"{key}: {trace.text}") for key, trace in self.items()]
        return [(re.sub(r"\W+", "-", key), content) for key, content in shown]

    def write(self, path: str | Path, title: str = "Notes of the parts") -> None:
        from undrift.report import page

        page.write(Path(path), title, self.sections())


def traces(query: Query, federation: Federation | None = None) -> Traces:
    """All traces of a record. With the federation, also the weights of the clients against facts about their data."""
    notes: dict[tuple[str, str], NoteValues] = {}
    for round, client, part, name, value in query(
        "SELECT round, client, part, name, value FROM notes WHERE part NOT LIKE 'diagnose.%' AND part != 'task' ORDER BY rowid"
    ):  # notes of diagnostics have figures of their own (report/pictures.py)
        notes.setdefault((part, name), {}).setdefault(round, {})[client] = json.loads(value)
    called = client_names(query)
    every, companions = Traces(), set()  # companions are drawn in the figure of another note
    for (part, name), values in notes.items():
        rule, _, bare = name.rpartition(".")  # of a mix: 0.eta, 1.eta, …
        rule = rule and f"{rule}."
        style = STYLES.get(f"{part.partition('.')[0]}.{bare}", Style(bare))
        others = [(part, rule + other) for other in (style.beside, style.over)]
        companions |= {".".join(other) for other in others}
        title = f"rule {rule[:-1]}: {style.title}" if rule else style.title
        style = replace(style, title=title, kind=style.kind or kind_of(values))
        every[f"{part}.{name}"] = Trace(part, name, style, values, notes.get(others[0]), notes.get(others[1]), called)
    drawn = Traces({key: trace for key, trace in every.items() if key not in companions})
    if federation is not None:
        compared = [against(trace, notes, federation) for trace in drawn.values()]
        drawn |= {trace.key: trace for trace in compared if trace}
    return drawn


def kind_of(values: NoteValues) -> str:
    """The kind of a note that is not in STYLES, by its first value."""
    first = next((v for clients in values.values() for v in clients.values() if v is not None), None)
    if isinstance(first, dict):
        return "points" if any(isinstance(item, list) for item in first.values()) else "mixture"
    return "curve" if isinstance(first, list) else "text" if isinstance(first, str) else "level"


def against(trace: Trace, notes: dict[tuple[str, str], NoteValues], federation: Federation) -> Trace | None:
    """The mean weight of every client against facts about its data and its loss: {fact: {client: (value, weight)}}."""
    if trace.key != f"{trace.part}.weight":
        return None
    from undrift.report.label_distribution import facts

    weight = per_client(trace.values)
    known = facts(federation, sorted(weight))
    if (trace.part, "loss") in notes:
        known["training loss"] = per_client(notes[trace.part, "loss"])
    values: Any = {
        fact: {client: (x, weight[client]) for client, x in by_client.items() if client in weight}
        for fact, by_client in known.items()
    }
    return Trace(
        trace.part, "weight_against", Style("mean weight of a client, ordered by", "against"), values, names=trace.names
    )


def per_client(values: NoteValues) -> dict[int, float]:
    """The mean of a number over the rounds of each client."""
    by_client: dict[int, list[float]] = {}
    for clients in values.values():
        for client, value in clients.items():
            if client is not None and value is not None:
                by_client.setdefault(client, []).append(value)
    return {client: math.fsum(own) / len(own) for client, own in by_client.items()}


# ---- in the terminal -------------------------------------------------------------------------------------------------

BLOCKS = "▁▂▃▄▅▆▇█"
QUANTILES = {"lowest": 0.0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "highest": 1.0}


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A curve in one line of text.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    values = [v for v in values if math.isfinite(v)]
    values = values[:: max(1, -(-len(values) // width))]
    low, high = min(values, default=0.0), max(values, default=0.0)
    return "".join(BLOCKS[min(7, int(8 * (v - low) / ((high - low) or 1)))] for v in values)


def numbers(values: Any) -> list[float]:
    """The finite numbers among the values."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def spread(values: NoteValues) -> dict[int, list[float]]:
    """Per round the minimum, the quartiles and the maximum over the clients."""
    finite = {round: numbers(clients.values()) for round, clients in sorted(values.items())}
    return {round: np.quantile(own, list(QUANTILES.values())).tolist() for round, own in finite.items() if own}


def mean_lists(values: NoteValues) -> dict[int, list[float]]:
    """Per round the mean over the clients, element by element."""
    return {
        round: [math.fsum(place) / len(place) for place in zip(*clients.values())]
        for round, clients in sorted(values.items())
    }


def level_text(trace: Trace) -> str:
    over = spread(trace.values)
    if not over:
        return "—"
    middle, last = [five[2] for five in over.values()], [*over.values()][-1]
    many = len([*trace.values.values()][-1])
    ends = f"; last round {last[0]:.4g} … {last[-1]:.4g}, {many} clients" if many > 1 else ""
    return f"{sparkline(middle, 30)}  {middle[0]:.4g} → {middle[-1]:.4g}{ends}"


def quantiles_text(trace: Trace) -> str:
    means = [*mean_lists(trace.values).values()]
    return f"{sparkline([five[2] for five in means], 30)}  last round {' | '.join(f'{v:.4g}' for v in means[-1])}"


def curve_text(trace: Trace) -> str:
    lines = [[*mean_lists(values).values()][-1] for values in (trace.values, trace.beside) if values]
    return "   ".join(f"{sparkline(line, 30)}  {line[0]:.4g} … {line[-1]:.4g}" for line in lines) + "  (last round)"


def counts_text(trace: Trace) -> str:
    total = np.sum([*trace.values[max(trace.values)].values()], axis=0)
    return f"{sparkline(total.tolist())}  0 … {len(total) - 1}, {total.sum()} in the last round"


def points_text(trace: Trace) -> str:
    x, y = pooled(trace.values[max(trace.values)])
    along = [v for _, v in sorted(zip(x, y))]
    return f"{sparkline(along, 30)}  {len(x)} samples of the last round, by loss"


def pooled(clients: dict[int | None, Any]) -> tuple[list[float], list[float]]:
    """The points of all clients in two lists."""
    pairs = [[*value.values()] for value in clients.values()]
    return [v for x, _ in pairs for v in x], [v for _, y in pairs for v in y]


def mixture_text(trace: Trace) -> str:
    largest = [
        numbers(max(own.values(), default=None) for own in clients.values()) for clients in trace.values.values()
    ]
    line = [float(np.mean(own)) for own in largest if own]
    return f"{sparkline(line, 30)}  largest share {line[-1]:.4g}" if line else "no client mixed in another model"


def last_text(trace: Trace) -> str:
    texts = [value for clients in trace.values.values() for value in clients.values()]
    return f"{texts[-1]} ({len(texts)} times)" if len(texts) > 1 else str(texts[-1])


def against_text(trace: Trace) -> str:
    lines = []
    for fact, pairs in trace.values.items():
        x, y = zip(*pairs.values())
        ordered = [weight for _, weight in sorted(zip(x, y), key=lambda pair: pair[0])]
        same = f"{fact}, {x[0]:.4g} for all" if len(set(x)) == 1 else ""
        lines.append(same or f"{sparkline(ordered, 30)}  {fact}, rank correlation {correlation(x, y)}")
    return "\n".join(lines)


def correlation(x: Sequence[float], y: Sequence[float]) -> str:
    """Spearman's rank correlation; "—" if one of the two is constant."""
    from scipy.stats import spearmanr

    if len(set(x)) < 2 or len(set(y)) < 2:
        return "—"
    return f"{spearmanr(x, y).statistic:+.2f}"


TEXT = {
    "level": level_text, "quantiles": quantiles_text, "curve": curve_text, "counts": counts_text,
    "points": points_text, "mixture": mixture_text, "text": last_text, "against": against_text,
    "members": members_text,
}  # fmt: skip
