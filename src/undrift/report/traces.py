"""What the parts saw, drawn: every note of a record as a line of text and as a figure.

`traces(rows)` reads the table `notes`. How a note is drawn stands in `LOOKS`, by axis and name; one that is not there
is drawn by what its values look like (a number, a list, a dict, a word), so a part of your own needs nothing. Nothing
is computed again: what is plotted is what was noted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from undrift.federation.federation import Federation

Rows = Callable[..., list[tuple[Any, ...]]]
Noted = dict[int, dict[int | None, Any]]  # round -> client (None: the server) -> value


@dataclass(frozen=True)
class Look:
    """How a note is drawn."""

    title: str
    kind: str = ""  # a key of trace_figures.DRAW; "": what the values look like
    beside: str = ""  # a second note in the same figure
    over: str = ""  # the note that is the x axis, the same for all clients


LOOKS = {
    "sampling.scores": Look("confidence scores", "quantiles"),
    "sampling.tau": Look("τ: samples below it are weighted"),
    "sampling.lambda": Look("λ: the weight of samples below τ"),
    "sampling.weighted": Look("share of samples below τ"),
    "sampling.nonfinite": Look("scores that were not finite"),
    "sampling.S_mid": Look("S_mid: the loss above which samples are biased"),
    "sampling.biased": Look("|V|/n: share of biased samples"),
    "sampling.biased_labels": Look("biased samples by class", "counts"),
    "sampling.survey": Look("loss against uncertainty", "points"),
    "sampling.enlarged_from": Look("unbiased samples where they were too few"),
    "sampling.picked": Look("samples trained on"),
    "personalize.gamma": Look("γ: share of the client's own model"),
    "personalize.alpha": Look("α: share of the personal model"),
    "personalize.weights": Look("whose models a client mixes", "mixture"),
    "weighting.weight": Look("weight in the mean"),
    "weighting.loss": Look("training loss, all local epochs"),
    "weighting.last_loss": Look("training loss, last local epoch"),
    "weighting.phi": Look("φ: mean confidence of the trained model"),
    "weighting.m": Look("m: mean of X (the loss to its moment)"),
    "weighting.v": Look("v: variance of X"),
    "weighting.u": Look("bounds u and l over the distance δ", "curve", beside="l", over="delta"),
    "weighting.eta": Look("η: width of the bounds, summed over δ"),
    "weighting.mean_loss": Look("mean of the bounded loss over M"),
    "weighting.sqrt_v": Look("√v over its largest value"),
    "weighting.distance": Look("divergence of the labels from uniform"),
    "weighting.accuracy": Look("accuracy on the proxy set"),
    "objective.mu": Look("μ: the pull towards the received model"),
    "objective.capped": Look("the pull on clients that are too small"),
    "combine.weight": Look("weight used instead"),
    "combine.gamma": Look("γ: how much the mean shrinks"),
    "combine.proxy_loss": Look("loss on the proxy set while weights are learned", "curve"),
    "combine.moved": Look("hidden units that changed places"),
    "combine.steps": Look("normalised number of steps"),
    "combine.bound": Look("the longest update that stays as it is"),
    "combine.factor": Look("how much an update is shortened"),
    "combine.age": Look("rounds since the model that is used"),
    "server.factor": Look("length of the server's step"),
}


@dataclass(frozen=True)
class Trace:
    part: str
    name: str
    look: Look  # its kind is known
    values: Noted
    beside: Noted | None = None
    over: Noted | None = None

    @property
    def key(self) -> str:
        return f"{self.part}.{self.name}"

    @property
    def figure(self) -> Any:
        """A plotly figure; None where there is nothing to draw (words)."""
        from undrift.report.trace_figures import DRAW

        return DRAW[self.look.kind](self) if self.look.kind in DRAW else None

    @property
    def text(self) -> str:
        """The values in a line; one for each fact, where a note is compared with several."""
        return TEXT[self.look.kind](self)


class Traces(dict[str, Trace]):
    """Traces by `axis.part.name`. Printed they are sparklines; `write` makes a page of them."""

    def __str__(self) -> str:
        lines = []
        for part in dict.fromkeys(trace.part for trace in self.values()):
            lines.append(part)
            for trace in self.values():
                if trace.part == part:
                    first, *more = trace.text.splitlines()
                    lines += [f"  {trace.look.title:<48} {first}", *(f"  {'':<48} {line}" for line in more)]
        return "\n".join(lines) or "no part noted anything"

    __repr__ = __str__

    def sections(self) -> list[tuple[str, Any]]:
        """For study/page.py: (id, figure) of each; words as a text of one line."""
        shown = [(key, trace.figure or f"{key}: {trace.text}") for key, trace in self.items()]
        return [(re.sub(r"\W+", "-", key), content) for key, content in shown]

    def write(self, path: str | Path, title: str = "What the parts saw") -> None:
        from undrift.report import page

        page.write(Path(path), title, self.sections())


def traces(rows: Rows, federation: Federation | None = None) -> Traces:
    """All traces of a record; with the federation also the weights against what the clients hold."""
    noted: dict[tuple[str, str], Noted] = {}
    for round, client, part, name, value in rows(
        "SELECT round, client, part, name, value FROM notes WHERE part NOT LIKE 'diagnose.%' ORDER BY rowid"
    ):  # what diagnostics found has figures of its own (study/pictures.py)
        noted.setdefault((part, name), {}).setdefault(round, {})[client] = json.loads(value)
    found, lazy_clients = Traces(), set()
    for (part, name), values in noted.items():
        rule, _, bare = name.rpartition(".")  # of a mix: 0.eta, 1.eta, …
        rule = rule and f"{rule}."
        look = LOOKS.get(f"{part.partition('.')[0]}.{bare}", Look(bare))
        others = [(part, rule + other) for other in (look.beside, look.over)]
        lazy_clients |= {".".join(other) for other in others}
        title = f"rule {rule[:-1]}: {look.title}" if rule else look.title
        look = replace(look, title=title, kind=look.kind or shape(values))
        found[f"{part}.{name}"] = Trace(part, name, look, values, *map(noted.get, others))
    found = Traces({key: trace for key, trace in found.items() if key not in lazy_clients})
    if federation is not None:
        found |= {
            trace.key: trace for trace in [against(trace, noted, federation) for trace in found.values()] if trace
        }
    return found


def shape(values: Noted) -> str:
    """The kind of a note that no look names."""
    first = next((v for clients in values.values() for v in clients.values() if v is not None), None)
    if isinstance(first, dict):
        return "points" if any(isinstance(item, list) for item in first.values()) else "mixture"
    return "curve" if isinstance(first, list) else "words" if isinstance(first, str) else "level"


def against(trace: Trace, noted: dict[tuple[str, str], Noted], federation: Federation) -> Trace | None:
    """The mean weight of every client against what it holds and how well it fits: {fact: {client: (fact, weight)}}."""
    if trace.key != f"{trace.part}.weight":
        return None
    from undrift.report.label_distribution import facts

    weight = per_client(trace.values)
    known = facts(federation, sorted(weight))
    if (trace.part, "loss") in noted:
        known["training loss"] = per_client(noted[trace.part, "loss"])
    values: Any = {
        fact: {client: (x, weight[client]) for client, x in of.items() if client in weight}
        for fact, of in known.items()
    }
    return Trace(trace.part, "weight_against", Look("mean weight of a client, ordered by", "against"), values)


def per_client(values: Noted) -> dict[int, float]:
    """A number's mean over a client's rounds."""
    seen: dict[int, list[float]] = {}
    for clients in values.values():
        for client, value in clients.items():
            if client is not None and value is not None:
                seen.setdefault(client, []).append(value)
    return {client: math.fsum(own) / len(own) for client, own in seen.items()}


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
    """Those that are numbers; None, NaN and infinities are gaps."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]


def spread(values: Noted) -> dict[int, list[float]]:
    """Per round the lowest, the quartiles and the highest over the clients."""
    sound = {round: numbers(clients.values()) for round, clients in sorted(values.items())}
    return {round: np.quantile(own, list(QUANTILES.values())).tolist() for round, own in sound.items() if own}


def mean_lists(values: Noted) -> dict[int, list[float]]:
    """Per round the mean over the clients, place by place."""
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
    """The points of all clients together."""
    pairs = [[*value.values()] for value in clients.values()]
    return [v for x, _ in pairs for v in x], [v for _, y in pairs for v in y]


def mixture_text(trace: Trace) -> str:
    largest = [
        numbers(max(own.values(), default=None) for own in clients.values()) for clients in trace.values.values()
    ]
    line = [float(np.mean(own)) for own in largest if own]
    return f"{sparkline(line, 30)}  largest share {line[-1]:.4g}" if line else "nobody mixed anything"


def words_text(trace: Trace) -> str:
    said = [value for clients in trace.values.values() for value in clients.values()]
    return f"{said[-1]} ({len(said)} times)"


def against_text(trace: Trace) -> str:
    lines = []
    for fact, pairs in trace.values.items():
        x, y = zip(*pairs.values())
        ordered = [weight for _, weight in sorted(zip(x, y), key=lambda pair: pair[0])]
        same = f"{fact}, {x[0]:.4g} for all" if len(set(x)) == 1 else ""
        lines.append(same or f"{sparkline(ordered, 30)}  {fact}, rank correlation {correlation(x, y)}")
    return "\n".join(lines)


def correlation(x: Sequence[float], y: Sequence[float]) -> str:
    """Spearman's rank correlation; "—" where one of them does not vary."""
    from scipy.stats import spearmanr

    if len(set(x)) < 2 or len(set(y)) < 2:
        return "—"
    return f"{spearmanr(x, y).statistic:+.2f}"


TEXT = {
    "level": level_text, "quantiles": quantiles_text, "curve": curve_text, "counts": counts_text,
    "points": points_text, "mixture": mixture_text, "words": words_text, "against": against_text,
}  # fmt: skip
