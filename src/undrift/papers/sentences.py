"""Sentences about results, made from the results: who is ahead of whom, by how much, at how many seeds, and what is open.

The pages under docs/results, the results in README.md and the findings of `undrift methods` are templates that are filled
with these functions, so that a number that changes its sign turns its sentence round.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undrift.papers import claims, papers, results
from undrift.study.standings import COLUMNS
from undrift.study.verdict import Looks, Question, Verdict, counted, listed, shown, signed, verdicts, worded

Key = tuple[str, str, int]  # row, column, seed


@dataclass(frozen=True)
class Results:
    """The numbers of a results file: by value, then by row, column and seed. Percentages are in points."""

    name: str
    values: dict[str, dict[Key, float]]
    rounds: dict[Key, int]
    looks: Looks | None = None
    preset: papers.Preset | None = None
    lines: tuple[dict[str, Any], ...] = ()

    @property
    def first(self) -> str:
        return next(iter(self.values))

    def numbers(self, row: str, column: str, value: str | None = None) -> dict[int, float]:
        """One number per seed. A row or column that the file does not have is an error of the template."""
        found = {s: x for (r, c, s), x in self.values[value or self.first].items() if (r, c) == (row, column)}
        if not found:
            raise KeyError(f"{self.name} has no {row!r} in {column!r}")
        return found

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column, _ in self.values[self.first]))

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _, _ in self.values[self.first]))

    def mean(self, row: str, column: str, value: str | None = None, digits: int = 1) -> str:
        """`84.8 ± 0.6` over seeds, `74.4` at one."""
        found = list(self.numbers(row, column, value).values())
        spread = f" ± {np.std(found, ddof=1):.{digits}f}" if len(found) > 1 else ""
        return f"{np.mean(found):.{digits}f}{spread}"

    def level(self, row: str, column: str, value: str | None = None, digits: int = 1) -> str:
        """The mean alone."""
        return f"{np.mean(list(self.numbers(row, column, value).values())):.{digits}f}"

    def span(self, rows: Sequence[str], columns: Sequence[str], value: str | None = None, digits: int = 1) -> str:
        """`47.0 to 50.1`: the lowest and the highest mean of these cells."""
        means = [np.mean(list(self.numbers(r, c, value).values())) for r in rows for c in columns]
        low, high = f"{min(means):.{digits}f}", f"{max(means):.{digits}f}"
        return low if low == high else f"{low} to {high}"

    def verdicts(
        self, row: str, other: str, columns: Sequence[str] = (), value: str | None = None, kind: str = "above",
        within: float = 1.0,
    ) -> list[Verdict]:  # fmt: skip
        """The verdict per column on `row` against `other`, corrected for the number of columns."""
        questions = []
        for column in columns or self.columns:
            ours, theirs = self.numbers(row, column, value), self.numbers(other, column, value)
            gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
            questions.append(Question(column, gaps, kind, within))
        return verdicts(questions, self.looks)

    def seeds(self, row: str | None = None, column: str | None = None) -> str:
        """`three seeds`, of a row, of a column or of the whole file."""
        keys = [key for key in self.values[self.first] if row in (None, key[0]) and column in (None, key[1])]
        counts = {len({s for r, c, s in keys if (r, c) == cell}) for cell in {key[:2] for key in keys}}
        return counted(min(counts), "seed") if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"

    def gap(self, row: str, other: str, column: str, value: str | None = None, digits: int = 1) -> str:
        """`+2.6 [−8.2, +13.4]`, or `+4.1, one seed`."""
        return shown(self.verdicts(row, other, [column], value)[0], digits)

    def against(
        self, row: str, other: str, columns: Sequence[str] = (), value: str | None = None, names: Sequence[str] = (),
        digits: int = 1,
    ) -> str:  # fmt: skip
        """A clause: `FLOOD cannot be distinguished from FedAvg (+2.6 [−8.2, +13.4])`. Several columns are grouped by what
        comes out. One seed is a hint."""
        ours, theirs = names or (row, other)
        found = self.verdicts(row, other, columns, value)
        lengths = {
            n for (r, c, _), n in self.rounds.items() if r in (row, other) and c in (columns or self.columns)
        }  # of the runs behind it
        unequal = f", {listed([str(n) for n in sorted(lengths)])} rounds" if len(lengths) > 1 else ""
        if len(found) == 1:
            return f"{ours} {words(found[0], is_plural(ours))} {theirs} ({shown(found[0], digits)}{unequal})"
        groups: dict[str, list[str]] = {}
        for verdict in found:
            said = words(verdict, is_plural(ours))
            groups.setdefault(said, []).append(f"{verdict.question.label} {hinted(verdict, digits)}")
        clauses = [
            f"{said} {theirs} in {len(cells)} of {len(found)} columns ({'; '.join(cells)})"
            for said, cells in groups.items()
        ]
        return f"{ours} {', '.join(clauses)}{unequal}"

    def near(
        self, row: str, other: str, within: float, columns: Sequence[str] = (), value: str | None = None,
        names: Sequence[str] = (), digits: int = 1,
    ) -> str:  # fmt: skip
        """A clause about equivalence: the same within so many points, not the same, or open."""
        ours, theirs = names or (row, other)
        found = self.verdicts(row, other, columns, value, "near", within)
        said = {
            "true": f"within {within:g} of",
            "false": f"not within {within:g} of",
            "open": f"not shown to be within {within:g} of",
        }
        groups: dict[str, list[str]] = {}
        for verdict in found:
            label = f"{verdict.question.label} " if len(found) > 1 else ""
            groups.setdefault(said[verdict.outcome], []).append(f"{label}{hinted(verdict, digits)}")
        many = len(found) > 1
        clauses = [
            f"{phrase} {theirs}{f' in {len(cells)} of {len(found)} columns' if many else ''} ({'; '.join(cells)})"
            for phrase, cells in groups.items()
        ]
        return f"{ours} is {', '.join(clauses)}"

    def group(
        self, rows: Sequence[str], other: str, column: str, value: str | None = None, names: Sequence[str] = (),
        digits: int = 1,
    ) -> str:  # fmt: skip
        """Several rows against one, in one column, corrected for their number: `a and b are ahead of c (…); d cannot …`."""
        theirs = self.numbers(other, column, value)
        questions = []
        for row in rows:
            ours = self.numbers(row, column, value)
            questions.append(Question(row, [ours[s] - theirs[s] for s in sorted(ours.keys() & theirs.keys())]))
        groups: dict[str, list[Verdict]] = {}
        for verdict in verdicts(questions, self.looks):
            groups.setdefault(words(verdict, plural=True), []).append(verdict)
        shown_as = dict(zip(rows, names or rows))
        clauses = []
        for said, found in groups.items():
            label = listed([shown_as[verdict.question.label] for verdict in found])
            phrase = said if len(found) > 1 else words(found[0])
            clauses.append(f"{label} {phrase} {other} ({'; '.join(shown(verdict, digits) for verdict in found)})")
        return "; ".join(clauses)

    def claim(self, sentence: str) -> str:
        """`true`, `false` or `open` with its numbers: what the rows say about a claim of the preset."""
        if self.preset is None:
            raise KeyError(f"{self.name} is not of a preset")
        claim = next(one for one in self.preset.claims if one.sentence == sentence)
        found = claims.outcome(self.preset, claim, list(self.lines))
        return f"{found.outcome} ({found.why})"

    def count(self, outcome: str) -> int:
        """How many claims of the preset come out so."""
        assert self.preset is not None
        return sum(one.outcome == outcome for one in claims.outcomes(self.preset, list(self.lines)))

    def outcomes(self) -> str:
        """`Of seven claims two are true, one is false, four are open.`"""
        assert self.preset is not None
        counts = {word: self.count(word) for word in ("true", "false", "open")}
        said = [f"{worded(n)} {'is' if n == 1 else 'are'} {word}" for word, n in counts.items() if n]
        return f"Of {counted(len(self.preset.claims), 'claim')} {listed(said)}"


def is_plural(name: str) -> bool:
    """Whether the name of a row is a plural, such as `bound weights`."""
    return name.split()[-1] in ("weights", "ones", "them")


def hinted(verdict: Verdict, digits: int) -> str:
    """A difference in a list whose words already say that there is one seed."""
    return signed(verdict.mean, digits) if verdict.seeds == 1 else shown(verdict, digits)


def words(verdict: Verdict, plural: bool = False) -> str:
    """The verdict chooses the words. One seed is called what it is."""
    be = "are" if plural else "is"
    if verdict.seeds == 1:
        hint = "above" if verdict.mean > 0 else "below" if verdict.mean < 0 else "level with"
        return f"{be} at this seed {hint}"
    return {"true": f"{be} ahead of", "false": f"{be} behind", "open": "cannot be distinguished from"}[verdict.outcome]


# ---- files -----------------------------------------------------------------------------------------------------------


def of_preset(file: Path) -> Results:
    """The results of `undrift paper run --results`."""
    preset, rows = results.read_results(file)
    values: dict[str, dict[Key, float]] = {value.name: {} for value in preset.values}
    for row in rows:
        for value in preset.values:
            if (pair := row["values"].get(value.name)) is not None and math.isfinite(pair[0]):
                values[value.name][row["row"], row["column"], row["seed"]] = value.factor * pair[0]
    lengths = {(row["row"], row["column"], row["seed"]): int(row["rounds"]) for row in rows}
    return Results(file.stem, values, lengths, claims.looks_of(rows), preset, tuple(rows))


def of_comparison(file: Path) -> Results:
    """The rows of `undrift compare`, one study per column."""
    rows = read_lines(file)
    values: dict[str, dict[Key, float]] = {}
    for name, number in COLUMNS:
        found = {(r["method"], r["study"], r["seed"]): number(r) for r in rows}
        values[name] = {key: 100 * x for key, x in found.items() if x is not None}
    lengths = {(r["method"], r["study"], r["seed"]): int(r["rounds"]) for r in rows}
    return Results(file.stem, values, lengths, None, None, tuple(rows))


def of_lines(file: Path, key: Callable[[dict[str, Any]], tuple[str, str]], value: str, factor: float = 1.0) -> Results:
    """Any file with a number and a seed per line. `key`: its row and column."""
    rows = read_lines(file)
    numbers = {(*key(row), int(row.get("seed", 0))): factor * row[value] for row in rows if row.get(value) is not None}
    return Results(file.stem, {value: numbers}, {}, None, None, tuple(rows))


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def ranges(numbers: Iterable[float], digits: int = 1) -> str:
    """`0.3 to 1.2`."""
    found = sorted(numbers)
    low, high = f"{found[0]:.{digits}f}", f"{found[-1]:.{digits}f}"
    return low if low == high else f"{low} to {high}"
