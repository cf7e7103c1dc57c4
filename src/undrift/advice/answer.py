"""The answer of the advisor: what to use, how much better it is than plain averaging, what it costs, and what is open.

The challenger of the race is recommended only if its paired interval against plain averaging, on fresh seeds and test data,
lies on the right side of zero. That comparison is looked at once. Otherwise the answer is plain averaging.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undrift.advice.criterion import GLOBAL_MODEL, Criterion
from undrift.advice.findings import Diagnosis
from undrift.advice.heats import Contender, HeatResult
from undrift.advice.paired import Paired, paired
from undrift.contract.compose import PREFERRED
from undrift.core.headline import ACCURACY, Headline
from undrift.core.words import clock
from undrift.methods.naming import method_pieces
from undrift.report.report import option_text
from undrift.study.tasks import Row
from undrift.study.verdict import ALPHA, Question, counted, listed, seeds_needed

CHEAPER = 0.8  # a client's seconds per round, relative to the winner's
NOT_IN_COMMAND = (
    "method",
    "lr",
    "seed",
    "data_seed",
    "out",
    "force",
    "validation",
    "evaluate_every",
    "evaluate_at",
    "evaluate_clients",
)


@dataclass(frozen=True)
class Advice:
    """What `ud.advise` returns. `str(advice)` is the paragraph, `advice.report()` the page."""

    folder: Path
    options: Mapping[str, Any]
    diagnosis: Diagnosis
    heats: tuple[HeatResult, ...] = ()
    plain: Contender | None = None
    challenger: Contender | None = None
    fresh: Mapping[str, Sequence[Row]] = field(default_factory=dict)  # by label
    headline: Headline = ACCURACY
    left_out: tuple[tuple[str, str], ...] = ()
    budget: Mapping[str, Any] = field(default_factory=dict)  # asked, rounds planned, rounds run, seconds
    stopped: str = ""  # why the race is not finished, and how to finish it
    about: tuple[str, ...] = ()  # sentences about what was raced: a simulated federation, one deal
    criterion: Criterion = GLOBAL_MODEL  # what the methods were compared by

    def __str__(self) -> str:
        return self.text()

    # ---- the decision ------------------------------------------------------------------------------------------------

    @property
    def difference(self) -> Paired | None:
        """The challenger minus plain averaging on fresh seeds; None before they ran, or if one of them failed."""
        if self.plain is None or self.challenger is None:
            return None
        rows = [self.fresh.get(one.label, ()) for one in (self.challenger, self.plain)]
        pairs = [(self.criterion.value(a), self.criterion.value(b)) for a, b in zip(*rows)]
        gaps = [a - b for a, b in pairs if a is not None and b is not None]
        return paired(gaps, self.headline.lower) if gaps and len(gaps) == len(pairs) else None

    @property
    def clear(self) -> bool:
        """Whether the challenger is better than plain averaging."""
        return self.difference is not None and self.difference.outcome == "true"

    @property
    def recommended(self) -> Contender | None:
        """The challenger if it is clearly better, else plain averaging; None before the first heat ended."""
        return self.challenger if self.clear else self.plain

    @property
    def run(self) -> Path | None:
        """The folder of a finished run of the recommended method, on a fresh seed."""
        rows = self.fresh.get(self.recommended.label, ()) if self.recommended else ()
        return Path(rows[0]["run"]) if rows and "failed" not in rows[0] else None

    @property
    def command(self) -> str:
        """The command that runs what is recommended."""
        if self.recommended is None:
            return ""
        given = [option_text(key, value) for key, value in self.options.items() if key not in NOT_IN_COMMAND]
        name = shlex.quote(self.recommended.method)
        return " ".join(["undrift run", f"--method {name}", *given, f"--lr {self.recommended.lr:g}"])

    # ---- in words ----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The answer as a paragraph, with its command."""
        paragraph = " ".join(self.sentences)
        change = "\n".join(f"  · {line}" for line in self.would_change)
        lines = [paragraph, f"\n  {self.command}" if self.command else ""]
        lines += [f"\nWhat would change this answer:\n{change}" if change else ""]
        lines += [f"\nA run of it is in {self.run}." if self.run else "", f"\n{self.stopped}" if self.stopped else ""]
        return "\n".join(line for line in lines if line).strip()

    @property
    def sentences(self) -> list[str]:
        """The verdict first, then what was raced, what it costs, the worst clients, and who is as good."""
        said = [self.verdict_sentence, *self.about, self.cost_sentence, self.worst_sentence, self.alike_sentence]
        return [sentence for sentence in said if sentence]

    @property
    def verdict_sentence(self) -> str:
        if self.plain is None:
            return "Nothing is known yet: no heat has ended."
        unit = " points" if self.headline.percent else ""
        rate = f"FedAvg at --lr {self.plain.lr:g}"
        found = self.difference
        if found is None:
            leader = f" {self.challenger.label} leads on validation data." if self.challenger and self.heats else ""
            reason = "nobody else finished the race" if self.challenger is None else "fresh seeds have not been run"
            return f"Nothing speaks against plain averaging yet: {reason}. Use {rate}.{leader}"
        assert self.challenger is not None
        title = self.criterion.title(self.headline)
        by = found.shown(2, self.headline.factor)
        on = f"on {counted(found.seeds, 'fresh seed')}, on test data"
        means = f"{self.headline.show(self.mean(self.challenger))} against {self.headline.show(self.mean(self.plain))}"
        if self.clear:
            return (
                f"Use {self.challenger.method} at --lr {self.challenger.lr:g}. Its {title} differs from plain "
                f"averaging at its own best rate ({self.plain.lr:g}) by {by}{unit} {on} ({means}; 95 % interval)."
            )
        worse = found.outcome == "false"
        said = "which is worse" if worse else "which may be chance"
        return (
            f"No clear winner: use {rate}. The best other method of the race, {self.challenger.label}, differs from it by "
            f"{by}{unit} in {title} {on} ({means}; 95 % interval), {said}."
        )

    def mean(self, contender: Contender) -> float | None:
        """The mean headline on fresh seeds."""
        values = [self.criterion.value(row) for row in self.fresh.get(contender.label, ())]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known and len(known) == len(values) else None

    @property
    def cost_sentence(self) -> str:
        """What a round costs a client, and what leaves it."""
        if self.recommended is None or not self.fresh:
            return ""
        own, plain = (self.client_seconds(one) for one in (self.recommended, self.plain))
        ratio = f", {own / plain:.1f} times that of FedAvg" if own and plain and self.recommended != self.plain else ""
        sends = leaves(self.recommended.method)
        more = f"the model's update and {listed(sends)}" if sends else "the model's update and nothing else"
        return f"A round takes a client {own:.2g} s here{ratio}. What leaves a site: {more}." if own else ""

    def client_seconds(self, contender: Contender | None) -> float:
        rows = self.fresh.get(contender.label, ()) if contender else ()
        times = [row["times"]["client"] for row in rows if row.get("times")]
        return float(np.median(times)) if times else 0.0

    @property
    def worst(self) -> dict[str, float]:
        """The mean headline of the worst tenth of the clients on their own test data, by label."""
        found = {}
        for one in (self.challenger, self.plain):
            rows = self.fresh.get(one.label, ()) if one else ()
            values = [((row["stages"].get("L1") or {}).get("acc_local") or {}).get("worst_decile") for row in rows]
            known = [value for value in values if value is not None]
            if one and known:
                found[one.label] = float(np.mean(known))
        return found

    @property
    def worst_sentence(self) -> str:
        values = [f"{self.headline.show(value)} with {label}" for label, value in self.worst.items()]
        return f"The worst tenth of the clients has {listed(values)}." if values else ""

    @property
    def alike(self) -> list[Contender]:
        """The contenders of the last heat that cannot be distinguished from its leader."""
        if not self.heats:
            return []
        kept = [one for one in self.heats[-1].standings if one.outcome in ("kept", "budget") or one.outcome == "leader"]
        return [one.contender for one in kept if one.contender != self.recommended]

    @property
    def alike_sentence(self) -> str:
        if not self.clear:
            return ""
        own = set(leaves(self.recommended.method)) if self.recommended else set()
        simpler = [one.label for one in self.alike if not one.plain and set(leaves(one.method)) < own]
        others = [one.label for one in self.alike if not one.plain]
        if not others:
            return ""
        less = f" {listed(simpler)} {'sends' if len(simpler) == 1 else 'send'} less." if simpler else ""
        return f"On validation data it cannot be distinguished from {listed(others)}.{less}"

    @property
    def would_change(self) -> list[str]:
        """What is open, and what would decide it."""
        found = []
        if (gap := self.difference) is not None and gap.outcome == "open":
            need = seeds_needed(Question("", gap.values), ALPHA)
            found.append(
                f"about {need} fresh seeds would decide between {self.challenger.label} and plain averaging, if the "
                "difference stays as it was seen" if need and self.challenger else
                "no number of seeds up to a thousand would show the difference that was seen"
            )  # fmt: skip
        dropped = [s for heat in self.heats for s in heat.standings if s.outcome == "budget"]
        if dropped:
            names = {standing.contender.name for standing in dropped} - {s.name for s in self.heats[-1].going_on}
            found += [
                f"a larger budget: {listed(sorted(names))} {'was' if len(names) == 1 else 'were'} dropped for budget, "
                "not distinguished"
            ] if names else []  # fmt: skip
        found += self.edge()
        if self.left_out:
            found.append(f"{counted(len(self.left_out), 'method')} left out, for example {': '.join(self.left_out[0])}")
        if self.heats:
            found.append(f"another number of rounds: everything here was measured after {self.options.get('rounds')}")
        return found

    def edge(self) -> list[str]:
        """A sentence if the recommended rate is the largest or the smallest that was tried."""
        if self.recommended is None or not self.heats:
            return []
        rates = sorted({s.contender.lr for s in self.heats[0].standings})
        if len(rates) < 2 or self.recommended.lr not in (rates[0], rates[-1]):
            return []
        which = "smallest" if self.recommended.lr == rates[0] else "largest"
        return [f"its rate is the {which} that was raced; --lr {self.recommended.lr:g} moves the three rates there"]

    # ---- as a file ---------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints and advise.json holds."""
        gap = self.difference
        contender = self.recommended
        return {
            "recommended": None if contender is None else {
                "method": contender.method, "lr": contender.lr, "clear": self.clear, "command": self.command,
                "run": str(self.run) if self.run else None, "sends": leaves(contender.method),
                "client_seconds": self.client_seconds(contender) or None,
            },
            "difference": None if gap is None or self.challenger is None or self.plain is None else {
                "challenger": self.challenger.label, "plain": self.plain.label, "estimate": gap.estimate, "low": finite(gap.low),
                "high": finite(gap.high), "seeds": gap.seeds, "outcome": gap.outcome,
                "values": list(gap.values),
            },
            "headline": vars(self.headline),
            "compared_by": vars(self.criterion),
            "means": {one.label: self.mean(one) for one in (self.challenger, self.plain) if one and self.fresh},
            "worst_tenth": self.worst,
            "heats": [heat.as_json() for heat in self.heats],
            "diagnosis": self.diagnosis.as_json(),
            "left_out": [list(pair) for pair in self.left_out],
            "would_change": self.would_change,
            "budget": dict(self.budget),
            "options": {key: value for key, value in self.options.items() if isinstance(value, (str, int, float, bool))},
            "sentences": self.sentences,
            "text": self.text(),
            "folder": str(self.folder),
            "stopped": self.stopped,
        }  # fmt: skip

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page; by default into the folder of the race."""
        from undrift.advice.advice_page import write

        return write(self.as_json(), Path(path) if path else self.folder / "index.html")

    @property
    def spent(self) -> str:
        """What the race took."""
        rounds, seconds = self.budget.get("run", 0), self.budget.get("seconds", 0.0)
        return f"{rounds:,} rounds in {clock(seconds)}"


def leaves(text: str) -> list[str]:
    """What a method sends beside the model's update."""
    parts = [piece.part for piece in method_pieces(text) if piece.rank > PREFERRED]
    return [f"{name} ({kind})" for part in parts for name, kind in part.uplink.items()]


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
