"""The claims of papers: what two numbers, columns, stages or trends should do, and whether the results bear it out.

A claim has parts. A part compares two terms, once per column, and every comparison is a question to `study/verdict.py`. A
term is a number of a row: of one value or the sum of several, in this column or in a named one, perhaps minus another row's
number. So a part can compare rows, columns, stages, gaps, and differences of differences. docs/papers.md has the format.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undrift.core.words import some
from undrift.study.verdict import KINDS, Looks, Question, Verdict, shown, verdicts

if TYPE_CHECKING:
    from undrift.papers.papers import Preset, Value

Row = dict[str, Any]
TRENDS = {"rises": "above", "falls": "below"}


@dataclass(frozen=True)
class Term:
    """A number of a row. Without a column it is the column that the claim is tested in; several values are summed. Of several
    rows it is the range, largest minus smallest. A constant has no row."""

    rows: tuple[str, ...] = ()
    column: str | None = None
    values: tuple[str, ...] = ()  # empty: the part's value
    minus: Term | None = None
    times: float = 1.0
    constant: float | None = None

    @property
    def names(self) -> list[tuple[str, str | None, tuple[str, ...]]]:
        """Every row, column and value that it names."""
        own = [(row, self.column, self.values) for row in self.rows]
        return [*own, *(self.minus.names if self.minus else [])]

    @property
    def label(self) -> str:
        if self.constant is not None:
            return f"{self.constant:g}"
        name = self.rows[0] if len(self.rows) == 1 else f"range of {', '.join(self.rows)}"
        times = f"{self.times:g} × " if self.times != 1 else ""
        where = f" in {self.column}" if self.column else ""
        what = f" ({' + '.join(self.values)})" if self.values else ""
        return f"{times}{name}{where}{what}" + (f" − {self.minus.label}" if self.minus else "")


@dataclass(frozen=True)
class Part:
    """Two terms, and what the first should be: above the second, below it, or near it."""

    kind: str
    terms: tuple[Term, Term]
    columns: tuple[str, ...] = ()  # empty: all
    value: str | None = None  # by default the first of the preset
    within: float = 1.0  # what counts as near, in the units of the value

    @property
    def spans_columns(self) -> bool:
        """Whether every term names its own column, so that there is one comparison and not one per column."""
        return all(column is not None for term in self.terms for _, column, _ in term.names)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper (or of a control), and the comparisons that decide it."""

    sentence: str
    parts: tuple[Part, ...]
    share: float = 1.0  # of the comparisons that must hold


@dataclass(frozen=True)
class Outcome:
    """What the rows say about a claim: true, false or open, and why."""

    claim: Claim
    outcome: str
    why: str
    verdicts: tuple[Verdict, ...] = ()
    missing: tuple[str, ...] = ()  # comparisons that were not run

    @property
    def settled(self) -> bool:
        """Whether more seeds of the same cells cannot change anything: it is decided, or only what was not run is open."""
        return self.outcome != "open" or all(verdict.outcome != "open" for verdict in self.verdicts)


# ---- reading ---------------------------------------------------------------------------------------------------------


def parse_claim(item: Mapping[str, Any]) -> Claim:
    """The claim of a TOML table. `all` holds several parts; otherwise the table is the only one."""
    parts = [part for one in item.get("all", [item]) for part in parse_parts(item["sentence"], {**item, **one})]
    return Claim(item["sentence"], tuple(parts), item.get("share", 1.0))


def parse_parts(sentence: str, item: Mapping[str, Any]) -> list[Part]:
    kinds = [kind for kind in (*KINDS, *TRENDS) if kind in item]
    if len(kinds) != 1:
        raise ValueError(f"the claim {sentence!r} needs exactly one of {', '.join(KINDS)}, rises and falls")
    kind = kinds[0]
    terms = item[kind]
    if kind in TRENDS:  # every term against the one before
        pairs = [(later, earlier) for earlier, later in itertools.pairwise(terms)]
    else:
        pairs = terms if isinstance(terms[0], list) else [terms]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"the claim {sentence!r} compares two terms at a time")
    return [
        Part(
            TRENDS.get(kind, kind), (parse_term(one), parse_term(other)), tuple(item.get("in", ())), item.get("value"),
            item.get("within", 1.0),
        )
        for one, other in pairs
    ]  # fmt: skip


def parse_term(item: str | float | Mapping[str, Any]) -> Term:
    """`"FLIU"`, a number, or `{row = "FLIU", column = "PATH", value = "L1 Acc(L)", minus = "FedAvg", times = 0.8}`; a list of
    values is summed, and `range` has a list of rows. What `minus` does not say (column, value) is that of the term."""
    if isinstance(item, str):
        return Term((item,))
    if isinstance(item, (int, float)):
        return Term(constant=float(item))
    values = item.get("value", ())
    own = {"column": item.get("column"), "value": values}
    minus = item.get("minus")
    return Term(
        tuple(item["range"]) if "range" in item else (item["row"],), item.get("column"),
        (values,) if isinstance(values, str) else tuple(values),
        None if minus is None else parse_term({**own, **({"row": minus} if isinstance(minus, str) else minus)}),
        item.get("times", 1.0),
    )  # fmt: skip


def names_in(claims: Sequence[Claim]) -> tuple[set[str], set[str], set[str]]:
    """All rows, columns and values that claims name."""
    rows, columns, values = set[str](), set[str](), set[str]()
    for part in (part for claim in claims for part in claim.parts):
        columns |= set(part.columns)
        values |= {part.value} if part.value else set()
        for row, column, own in (name for term in part.terms for name in term.names):
            rows.add(row)
            columns |= {column} if column else set()
            values |= set(own)
    return rows, columns, values


# ---- deciding --------------------------------------------------------------------------------------------------------


def number(row: Row, value: str) -> float | None:
    pair = (row.get("values") or {}).get(value)
    return None if pair is None else pair[0]


@dataclass(frozen=True)
class Numbers:
    """The numbers of all runs, in the units of their values."""

    values: Mapping[str, Value]
    first: str  # the value of parts that name none
    rows: Mapping[tuple[str, str, int], Row]

    def of(self, term: Term, column: str, seed: int, value: str | None) -> float | None:
        """The number of a term; None if a run that it needs is missing."""
        if term.constant is not None:
            return term.constant
        each = [self.sum_of(row, term, column, seed, value) for row in term.rows]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        total = term.times * (known[0] if len(known) == 1 else max(known) - min(known))
        if term.minus is not None:
            other = self.of(term.minus, column, seed, value)
            return None if other is None else total - other
        return total

    def sum_of(self, name: str, term: Term, column: str, seed: int, value: str | None) -> float | None:
        """The sum of a term's values in one row."""
        row = self.rows.get((name, term.column or column, seed))
        if row is None:
            return None
        found = [(self.values[own].factor, number(row, own)) for own in term.values or (value or self.first,)]
        return None if any(one is None for _, one in found) else sum(factor * (one or 0.0) for factor, one in found)

    def differences(self, part: Part, column: str) -> list[float]:
        """First term minus second, one number per seed that has both."""
        found = []
        for seed in sorted({seed for _, _, seed in self.rows}):
            pair = [self.of(term, column, seed, part.value) for term in part.terms]
            if None not in pair:
                found.append(pair[0] - pair[1])  # type: ignore[operator]
        return found

    def rounds(self, part: Part, column: str) -> set[int]:
        """The lengths of the runs behind a comparison."""
        used = {(row, own or column) for term in part.terms for row, own, _ in term.names}
        return {int(run["rounds"]) for (row, at, _), run in self.rows.items() if (row, at) in used and "rounds" in run}


def looks_of(rows: Sequence[Row]) -> Looks | None:
    """How often the results were looked at, if seeds were added until they were clear."""
    found = {tuple(row["until_clear"]) for row in rows if row.get("until_clear")}
    return Looks(*max(found, key=lambda pair: pair[1])) if found else None


def outcomes(preset: Preset, rows: Sequence[Row]) -> list[Outcome]:
    return [outcome(preset, claim, rows) for claim in preset.claims]


def outcome(preset: Preset, claim: Claim, rows: Sequence[Row], looks: Looks | None = None) -> Outcome:
    """Whether a claim is true, false or open. It is true when enough of its comparisons are, false when too many are false.

    The verdict on a comparison is that of `study/verdict.py`, corrected (Holm) for the number of comparisons that were run."""
    numbers = Numbers({v.name: v for v in preset.values}, preset.values[0].name,
                      {(row["row"], row["column"], row["seed"]): row for row in rows if "failed" not in row})  # fmt: skip
    questions, missing = list[Question](), list[str]()
    for part in claim.parts:
        several = len(claim.parts) > 1
        columns = ("",) if part.spans_columns else part.columns or tuple(column.name for column in preset.columns)
        for column in columns:
            label = " against ".join(t.label for t in part.terms) if several or not column else ""
            label = ", ".join(name for name in (label, column) if name)
            gaps = numbers.differences(part, column)
            if not gaps:
                missing.append(label)
                continue
            lengths = numbers.rounds(part, column)
            if len(lengths) > 1:
                label += f" ({' and '.join(str(n) for n in sorted(lengths))} rounds)"
            questions.append(Question(label, gaps, part.kind, part.within))
    found = verdicts(questions, looks or looks_of(rows))
    if not found:
        return Outcome(claim, "open", "not run", (), tuple(missing))
    used = {name for part in claim.parts for name in {part.value or numbers.first, *part.terms[0].values}}
    digits = 2 if all(numbers.values[name].factor == 100 for name in used) else 4
    said = [f"{verdict.question.label} {shown(verdict, digits)}" for verdict in found]
    said += [f"not run: {some(missing)}"] if missing else []
    count = len(found) + len(missing)
    yes, no = (sum(verdict.outcome == word for verdict in found) for word in ("true", "false"))
    need = claim.share * count
    decided = "true" if yes >= need - 1e-9 else "false" if count - no < need - 1e-9 else "open"
    return Outcome(claim, decided, "; ".join(said), tuple(found), tuple(missing))


def claim_table(decided: Sequence[Outcome]) -> list[list[str]]:
    return [["claim", "comes out", "difference"], *[[one.claim.sentence, one.outcome, one.why] for one in decided]]
