"""The page of claims: every claim of the five papers with what is printed, what our runs say, and the command that decides it.

`docs/results/run tables` renders it from the presets and the result files, as claims.md (through its template) and as claims.html.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from undrift.experiment.tables import markdown_table
from undrift.papers import papers
from undrift.papers.standing import CONTROL, CONTROLS, Standing, of_paper, standings
from undrift.report import page
from undrift.study.verdict import counted, listed, worded

PAPERS = {"flood": "FLOOD", "fedbss": "FedBSS", "fliu": "FLIU", "bound": "Bound weighting", "fednolowe": "FedNolowe"}
OUR_CONTROLS = {"flood": ["flood"], "fedbss": ["fedbss"], "fliu": ["fliu"], "bound": ["weights", "uniform"],
                "fednolowe": ["weights", "uniform"]}  # fmt: skip
VERDICTS = ("true", "false", "open")
HEAD = ["where", "claim", "verdict", "ours, 95 % interval", "printed", "controls", "scale", "command"]
COUNTS = [
    "paper",
    "claims",
    "true",
    "false",
    "open after runs",
    "open, not run",
    "untestable",
    "controls: true, false, open",
]
MOST = 6  # sentences that a paragraph quotes of one kind
Cells = list[list[str]]


class ClaimsPage:
    """Tables and paragraphs over the result files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def every(self) -> list[Standing]:
        return standings(self.folder)

    @functools.cached_property
    def untestable(self) -> dict[str, list[tuple[str, str, str]]]:
        """(where, sentence, why) of what cannot be tested, by paper."""
        found: dict[str, list[tuple[str, str, str]]] = {paper: [] for paper in (*PAPERS, CONTROLS)}
        for name in papers.names():
            for one in papers.load(name).untestable:
                found[name.partition("/")[0]].append((name, one.sentence, one.why))
        return found

    # ---- counts ------------------------------------------------------------------------------------------------------

    def counts(self) -> str:
        return markdown_table(self.count_cells(), words=(0,))

    def count_cells(self) -> Cells:
        """How many claims of each paper are true, false, open and untestable."""
        rows = [self.count_row(name, paper) for paper, name in PAPERS.items()]
        sums = [str(sum(int(row[place]) for row in rows)) for place in range(1, 7)]
        return [COUNTS, *rows, ["all", *sums, self.control_counts(PAPERS)]]

    def count_row(self, name: str, paper: str) -> list[str]:
        own = list(of_paper(self.every, paper))
        decided = [sum(one.verdict == word for one in own) for word in ("true", "false")]
        after = sum(one.verdict == "open" and one.found is not None for one in own)
        none = sum(one.found is None for one in own)
        lost = len(self.untestable[paper])
        numbers = [len(own) + lost, *decided, after, none, lost]
        return [name, *map(str, numbers), self.control_counts([paper])]

    def control_counts(self, of: Iterable[str]) -> str:
        names = list(of)
        own = {id(one): one for paper in names for one in self.controls(paper)}.values()
        return ", ".join(str(sum(one.verdict == word for one in own)) for word in VERDICTS)

    def controls(self, paper: str) -> list[Standing]:
        """The controls of a paper: those in its own presets, and the presets of `controls` that concern it."""
        theirs = [f"{CONTROLS}/{name}" for name in OUR_CONTROLS[paper]]
        return [*of_paper(self.every, paper, controls=True), *(one for one in self.every if one.preset.name in theirs)]

    def total(self) -> str:
        """`210 claims: 4 true, …`."""
        own = [one for paper in PAPERS for one in of_paper(self.every, paper)]
        lost = sum(len(self.untestable[paper]) for paper in PAPERS)
        counts = {word: sum(one.verdict == word for one in own) for word in VERDICTS}
        waiting = sum(one.found is None for one in own)
        return (
            f"{len(own) + lost} claims: {counts['true']} true, {counts['false']} false, {counts['open']} open "
            f"({waiting} of them have no kept run), {lost} that cannot be tested here"
        )

    # ---- paragraphs --------------------------------------------------------------------------------------------------

    def paragraph(self, paper: str) -> str:
        """What holds, what does not, what is open, and what the controls say. The verdicts choose the words."""
        own = list(of_paper(self.every, paper))
        places = len({one.preset.name for one in own})
        ran = [one for one in own if one.found]
        parts = [
            f"{counted(len(own), 'claim').capitalize()} in {counted(places, 'table')} and figures; "
            f"{worded(len(ran))} of them have kept runs."
        ]
        parts += quoted([one for one in ran if one.verdict == "true"], "What holds")
        parts += quoted([one for one in ran if one.verdict == "false"], "What does not hold")
        if still := [one for one in ran if one.verdict == "open"]:
            single = sum(all(v.seeds == 1 for v in one.found.verdicts) for one in still if one.found)
            all_single = (
                ", all of them with one seed" if single == len(still) else f", {worded(single)} of them with one seed"
            )
            seeds = all_single if single else ""
            parts.append(f"Open after runs: {worded(len(still))}{seeds}.")
        said = [one for one in self.controls(paper) if one.found]
        for word, lead in (("true", "Controls that come out true"), ("false", "Controls that come out false")):
            parts += quoted([one for one in said if one.verdict == word], lead)
        open_controls = sum(one.verdict == "open" for one in said)
        parts += [f"Controls that stay open: {worded(open_controls)}."] if open_controls else []
        parts += [] if said else ["No control has been run."]
        return " ".join(parts)

    # ---- tables ------------------------------------------------------------------------------------------------------

    def table(self, paper: str) -> str:
        return markdown_table(self.cells(paper), words=tuple(range(len(HEAD))))

    def cells(self, paper: str) -> Cells:
        """Every claim, then the controls of the same preset, then what cannot be tested."""
        rows = [HEAD]
        own = [one for one in self.every if one.paper == paper]
        for name in dict.fromkeys(one.preset.name for one in own):
            here = [one for one in own if one.preset.name == name]
            ours = [one for one in here if one.is_control]
            for one in sorted(here, key=lambda one: one.is_control):
                beside = "" if one.is_control else listed([f"{n} {word}" for word, n in outcomes(ours).items() if n])
                sentence = f"*{one.claim.sentence}*" if one.is_control else one.claim.sentence
                rows.append(
                    [name, sentence, one.verdict, one.ours, one.printed, beside or "—", one.scale or "—", one.command]
                )
        rows += [[name, said, "untestable", "—", "—", "—", "—", why] for name, said, why in self.untestable[paper]]
        return rows

    # ---- HTML --------------------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """The page on its own: no other file, no network."""
        style = page.asset("page.css") + "body { max-width: 110rem }"  # wide tables
        head = f"<style>{style}</style><script>{page.asset('page.js')}</script>"
        sections = [page.element("total", f"{self.total()}."), page.element("counts", self.count_cells())]
        for paper, name in {**PAPERS, CONTROLS: "Controls of ours"}.items():
            said = [("said", self.paragraph(paper))] if paper in PAPERS else []
            plain = [[cell.replace("`", "").replace("*", "") for cell in row] for row in self.cells(paper)]
            sections.append(page.element(paper, [*said, (f"{paper}-table", plain)], name))
        contents = "".join(f"<a href='#{paper}'>{name}</a>" for paper, name in PAPERS.items())
        path.write_text(
            page.document("The claims of the five papers", head, f"<nav>{contents}</nav>{''.join(sections)}"),
            encoding="utf-8",
        )


def outcomes(found: Sequence[Standing]) -> dict[str, int]:
    return {word: sum(one.verdict == word for one in found) for word in VERDICTS}


def quoted(found: Sequence[Standing], lead: str) -> list[str]:
    """`What holds: “…” (quick); “…” (mid).` Of many the first ones, those of the largest scale before the others."""
    if not found:
        return []
    order = sorted(found, key=lambda one: ("paper", "mid", "quick").index(one.scale))
    said = [f"“{one.claim.sentence.removeprefix(CONTROL)}” ({one.preset.name}, {one.scale})" for one in order[:MOST]]
    more = f"; and {worded(len(order) - MOST)} more, in the table" if len(order) > MOST else ""
    return [f"{lead}: {'; '.join(said)}{more}."]
