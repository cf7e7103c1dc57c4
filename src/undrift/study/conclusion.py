"""What can be concluded from a comparison, in one sentence: who is ahead of whom, who cannot be distinguished, and how many
seeds would decide the first place. The rules are those of `study/verdict.py`, over all pairs of methods."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from undrift.core.headline import ACCURACY, Headline
from undrift.experiment.tables import headline_of
from undrift.study.standings import G, Row, Value, cells, columns_of, labels, rank_column, values
from undrift.study.verdict import Looks, Question, Verdict, counted, listed, seeds_needed, shown, verdicts

# One seed decides no pair. Of more methods than this only the pairs with the first are looked at then: a thousand runs have half
# a million pairs.
ALL_PAIRS = 50


@dataclass(frozen=True)
class Conclusion:
    """The methods from the best mean to the worst, and the verdict on every pair (the first minus the second)."""

    methods: tuple[str, ...]
    pairs: dict[tuple[str, str], Verdict]
    looks: Looks | None
    name: str
    headline: Headline = ACCURACY

    @property
    def best(self) -> str:
        return "lowest" if self.headline.lower else "highest"

    def ahead(self, method: str) -> list[str]:
        """The methods that this one is ahead of."""
        return [
            other
            for other in self.methods
            if (self.sign(method, other) > 0 if (method, other) in self.pairs else self.sign(other, method) < 0)
        ]

    def sign(self, first: str, second: str) -> int:
        """1: the first is ahead, −1: the second is, 0: open or not compared."""
        found = self.pairs.get((first, second))
        return 0 if found is None else {"true": 1, "false": -1, "open": 0}[found.outcome]

    @property
    def equal(self) -> list[tuple[str, str]]:
        """Pairs with the same numbers at every seed."""
        return [pair for pair, verdict in self.pairs.items() if not any(verdict.question.differences)]

    @property
    def rivals(self) -> list[str]:
        """The methods that the first one is neither ahead of nor equal to."""
        if not self.methods:
            return []
        first = self.methods[0]
        decided = {*self.ahead(first), *(other for one, other in self.equal if one == first)}
        return [method for method in self.methods[1:] if method not in decided]

    @property
    def clear(self) -> bool:
        """Whether the first place is decided."""
        return not self.rivals

    @property
    def seeds(self) -> int:
        return max((verdict.seeds for verdict in self.pairs.values()), default=1)

    def seeds_to_decide(self, pair: tuple[str, str]) -> int | None:
        """How many seeds would distinguish a pair, from the variance seen. Under repeated looks: at the last one's level."""
        verdict = self.pairs[pair]
        alpha = verdict.alpha if self.looks is None else self.looks.alpha(self.looks.most) / len(self.pairs)
        return seeds_needed(verdict.question, alpha)

    @property
    def sentence(self) -> str:
        if len(self.methods) < 2:
            return "There is nothing to compare: fewer than two methods have a result."
        if self.seeds == 1:
            first, second = self.methods[:2]
            by = shown(self.pairs[first, second], scale=self.headline.factor)
            return (
                f"Nothing can be concluded from one seed: {first} has the {self.best} {self.name} ({by}, against {second}), "
                "which may be chance. Add --seeds 3, or --until-clear 10."
            )
        return f"{self.said_ahead()} {self.said_open()}".strip()

    def said_ahead(self) -> str:
        """`At three seeds (…): a is ahead of b and c; b is ahead of c.`"""
        groups: dict[tuple[str, ...], list[str]] = {}
        for method in self.methods:
            if behind := tuple(self.ahead(method)):
                groups.setdefault(behind, []).append(method)
        pairs = "" if len(self.pairs) == 1 else f", corrected for {len(self.pairs)} pairs"
        looks = "" if self.looks is None else f" and for looks at {self.looks.first} to {self.looks.most} seeds"
        at = f"By {self.name} at {counted(self.seeds, 'seed')} (95 % intervals{pairs}{looks})"
        if not groups:
            return f"{at} no method can be distinguished from another."
        clauses = [
            f"{listed(who)} {'is' if len(who) == 1 else 'are'} ahead of {listed(behind)}"
            for behind, who in groups.items()
        ]
        return f"{at} {'; '.join(clauses)}."

    def said_open(self) -> str:
        """Who cannot be distinguished, and what would decide the first place."""
        parts = []
        equal = [f"{a} and {b}" for a, b in self.equal]
        if equal:
            parts.append(f"The same numbers at every seed: {'; '.join(equal)}.")
        same = set(self.equal)
        open_pairs = [p for p, v in self.pairs.items() if v.outcome == "open" and p not in same]
        if not open_pairs:
            return " ".join(parts)
        first, rivals = self.methods[0], self.rivals
        if not any(self.ahead(method) for method in self.methods):
            return " ".join([*parts, f"{first} has the {self.best} mean.", self.said_seeds(rivals)])
        if rivals:
            parts.append(f"{first} has the {self.best} mean and cannot be distinguished from {listed(rivals)}.")
        if rest := len(open_pairs) - len(rivals):
            parts.append(f"{counted(rest, 'other pair').capitalize()} cannot be distinguished." if rivals else
                         f"{counted(rest, 'pair').capitalize()} behind it cannot be distinguished.")  # fmt: skip
        if rivals:
            parts.append(self.said_seeds(rivals))
        return " ".join(parts)

    def said_seeds(self, rivals: Sequence[str]) -> str:
        """How many seeds would decide the first place, from the variance seen."""
        first = self.methods[0]
        needs = {rival: self.seeds_to_decide((first, rival)) for rival in rivals}
        hardest = max(rivals, key=lambda rival: needs[rival] or 10**9)
        need = needs[hardest]
        gap = shown(self.pairs[first, hardest], scale=self.headline.factor)
        if need is None:
            return f"No number of seeds up to a thousand would decide it against {hardest} ({gap})."
        if self.looks is not None and need > self.looks.most:
            return f"Against {hardest} ({gap}) about {need} seeds would decide it, more than the {self.looks.most} allowed."
        more = max(1, need - self.seeds)
        return f"About {more} more seed{'s' * (more > 1)} would decide the first place (hardest: {hardest}, {gap})."


def conclusion(rows: Sequence[Row], value: Value = G, looks: Looks | None = None, name: str = "G") -> Conclusion:
    """What the rows of a comparison allow to conclude about `value`. `looks`: how often it was looked at while seeds were
    added. Methods without this number (failed, or without a global model) are left out."""
    means, headline = {method: values(rows, method, value) for method in labels(rows)}, headline_of(rows)
    ranked = sorted((m for m in means if means[m]), key=lambda m: -headline.sign * sum(means[m]) / len(means[m]))
    by_seed = cells(rows, value)
    whole = len(by_seed) > 1 or len(ranked) <= ALL_PAIRS
    asked = itertools.combinations(ranked, 2) if whole else ((ranked[0], other) for other in ranked[1:])
    questions = []
    for a, b in asked:
        gaps = [cell[a] - cell[b] for cell in by_seed if a in cell and b in cell]
        if gaps:
            questions.append(((a, b), Question(f"{a} − {b}", gaps, "below" if headline.lower else "above")))
    found = verdicts([question for _, question in questions], looks)
    by_pair = {pair: verdict for (pair, _), verdict in zip(questions, found)}
    return Conclusion(tuple(ranked), by_pair, looks, name, headline)


def by_rank(rows: Sequence[Row], rank_by: str | None = None, looks: Looks | None = None) -> Conclusion:
    """The conclusion by the column that the standings rank by."""
    name = rank_column(rows, rank_by)
    return conclusion(rows, columns_of(rows)[name], looks, name)
