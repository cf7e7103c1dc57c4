"""Where every claim of the papers stands: what is printed, what the kept results say about it, and the command that runs it.

Of several results files with runs of a claim the one of the largest scale counts, of those with several seeds if there are any:
what comes out does not choose the file. A claim without runs is open. Sentences that start with "Control:" and the presets of
`controls` are ours, and are counted apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from undrift.papers import claims, papers, results
from undrift.papers.scales import SCALES
from undrift.study.verdict import Verdict, shown, signed

CONTROL, CONTROLS = "Control: ", "controls"
NUMBER = re.compile(r"\d+(\.\d+)?")
MOST = 3  # comparisons that are written out


@dataclass(frozen=True)
class Standing:
    """A claim, and the result that says most about it; without one it was not run."""

    preset: papers.Preset
    claim: claims.Claim
    found: claims.Outcome | None = None
    scale: str = ""
    file: str = ""  # of the results, without its ending

    @property
    def paper(self) -> str:
        return self.preset.name.partition("/")[0]

    @property
    def is_control(self) -> bool:
        return self.claim.sentence.startswith(CONTROL) or self.paper == CONTROLS

    @property
    def verdict(self) -> str:
        """true, false or open."""
        return self.found.outcome if self.found else "open"

    @property
    def ours(self) -> str:
        """The differences with their intervals; of many the range of the means."""
        if self.found is None:
            return "—"
        digits = self.digits
        verdicts = self.found.verdicts
        if len(verdicts) <= MOST:
            said = "; ".join(f"{verdict.question.label} {shown(verdict, digits)}".strip() for verdict in verdicts)
        else:
            means = [verdict.mean for verdict in verdicts]
            counts = {word: sum(v.outcome == word for v in verdicts) for word in ("true", "false", "open")}
            each = ", ".join(f"{word} {number}" for word, number in counts.items() if number)
            said = f"{len(verdicts)} comparisons ({each}), {signed(min(means), digits)} to {signed(max(means), digits)}"
        return said + (f"; {len(self.found.missing)} not run" if self.found.missing else "")

    @property
    def digits(self) -> int:
        """Two for percentages, four for everything else."""
        named = {name for part in self.claim.parts for name in {part.value, *part.terms[0].values} if name}
        values = [v for v in self.preset.values if v.name in (named or {self.preset.values[0].name})]
        return 1 if all(value.factor == 100 for value in values) else 4

    @property
    def command(self) -> str:
        """The command whose results these are, or the one that would give some, with its time on two cores."""
        if self.found:
            return f"`docs/results/run {self.file}`"
        scale = "mid" if self.preset.mid else "quick"
        minutes = self.preset.minutes(scale)
        return f"not run: `undrift paper run {self.preset.name} --scale {scale}`, {minutes:g} min"

    @property
    def printed(self) -> str:
        """The differences that the paper prints, and in how many of the printed cells they are as claimed."""
        found = printed_verdicts(self.preset, self.claim)
        if not found:
            return "—"
        means = [verdict.mean for verdict in found]
        low, high = signed(min(means), self.digits), signed(max(means), self.digits)
        if len(found) == 1:
            return low
        bears = sum(as_claimed(verdict) for verdict in found)
        return f"{low} to {high}, as claimed in {bears} of {len(found)}"


def as_claimed(verdict: Verdict) -> bool:
    """Whether a printed difference, which has no interval, is on the side that is claimed."""
    question = verdict.question
    if question.kind == "near":
        return abs(verdict.mean) <= question.within
    return verdict.mean > 0 if question.kind == "above" else verdict.mean < 0


def printed_verdicts(preset: papers.Preset, claim: claims.Claim) -> tuple[Verdict, ...]:
    """The claim on the printed numbers, as if they were one seed."""
    rows = []
    for row, columns in preset.published.items():
        for column in columns:
            texts = [(value, preset.printed(row, column, place)) for place, value in enumerate(preset.values)]
            numbers = {v.name: [float(found[0]) / v.factor, 0.0] for v, text in texts if (found := NUMBER.match(text))}
            rows.append({"row": row, "column": column, "seed": 0, "values": numbers})
    return claims.outcome(preset, claim, rows).verdicts


def standings(folder: Path, presets: Sequence[papers.Preset] | None = None) -> list[Standing]:
    """Every claim of every preset, with what the results files of a folder say."""
    files = results_files(folder)
    every = [papers.load(name) for name in papers.names()] if presets is None else presets
    return [best(preset, claim, files) for preset in every for claim in preset.claims]


def results_files(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    """(scale, file) of the results of `undrift paper run`, by the preset that was run. Other files are passed over."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            first = json.loads(next(lines, "{}"))
        if "preset" in first and "scale" in first:
            found.setdefault(first["preset"], []).append((first["scale"], file))
    return found


def best(preset: papers.Preset, claim: claims.Claim, files: Mapping[str, Sequence[tuple[str, Path]]]) -> Standing:
    candidates = []
    for scale, file in files.get(preset.runs_name, ()):
        found = claims.outcome(preset, claim, rows_of(file, preset))
        if found.verdicts:
            several = any(verdict.seeds > 1 for verdict in found.verdicts)
            rank = (several, SCALES.index(scale), len(found.verdicts))
            candidates.append((rank, Standing(preset, claim, found, scale, file.stem)))
    return max(candidates, key=lambda pair: pair[0])[1] if candidates else Standing(preset, claim)


def rows_of(file: Path, preset: papers.Preset) -> list[results.Row]:
    key = (str(file), file.stat().st_mtime_ns, preset.name)
    if key not in READ:
        READ[key] = results.read_results(file, preset)[1]
    return READ[key]


READ: dict[tuple[str, int, str], list[results.Row]] = {}  # a file is asked about once per claim


def of_paper(found: Sequence[Standing], paper: str, controls: bool = False) -> Iterator[Standing]:
    """The claims of a paper, or the controls among its presets."""
    return (one for one in found if one.paper == paper and one.is_control == controls)
