"""Pages of a preset: tables, claims, figures and curves of its runs, or of a results file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.papers import claims, figures, papers
from undrift.papers import table as paper_table
from undrift.papers.reductions import condensed
from undrift.papers.results import read_results
from undrift.papers.scales import Scaled
from undrift.report import page, plots
from undrift.report.picture import picture
from undrift.store.record import rows_of
from undrift.study.comparison import safe
from undrift.study.tasks import Row


@dataclass(frozen=True)
class RunCurve:
    """A run as a curve of the page."""

    label: str
    folder: Path

    def query(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return rows_of(self.folder, query, values)


def write_page(scaled: Scaled, rows: Sequence[Row], folder: Path) -> Path:
    """The page of a preset's runs: tables, claims, curves, and the commands that repeat them."""
    preset = scaled.preset
    sections = opening(preset, rows, scaled.reductions, scaled)
    for column in scaled.columns if rows else ():
        here = [row for row in rows if row["column"] == column.name and "failed" not in row]
        sections.append((f"curves-{safe(column.name)}", curves_of(here, preset.headline.name), column.name))
    repeated = [f"undrift run {shlex.quote(row['run'] + '/run.toml')}" for row in rows if "run" in row]
    command = f"undrift paper run {preset.name} --scale {scaled.scale}"
    sections.append(("commands", ("pre", "\n".join([command, "", *repeated[:20]])), "Commands to repeat this"))
    page.write(folder / "index.html", f"{preset.name}: {preset.title}", sections)
    return folder / "index.html"


def write_figures(scaled: Scaled, rows: Sequence[Row], folder: Path) -> Path | None:
    """The preset's figures alone, as figures.html and, with chromium, figures.png; None where it has none."""
    return figure_page(
        scaled.preset, figures.drawn(scaled.preset, rows, scaled), folder / "figures.html", scaled.reductions
    )


def write_results_figures(file: Path, folder: Path) -> list[Path]:
    """The figures of a results file, of its preset and of all that share its runs: PAPER-FIGURE.html and .png each."""
    made = []
    for preset in papers.showing(read_results(file)[0].runs_name):
        rows = read_results(file, preset)[1]
        less = [sentence for row in rows for sentence in row["reductions"]]
        made.append(
            figure_page(preset, figures.drawn(preset, rows), folder / f"{preset.name.replace('/', '-')}.html", less)
        )
    return [path for path in made if path]


def figure_page(
    preset: papers.Preset, drawn: Sequence[tuple[str, Any]], place: Path, reductions: Sequence[str]
) -> Path | None:
    """A page of panels, two beside each other, and with chromium its picture, whose path is given back. It says what is less
    than in the paper, because the title names the paper's experiment."""
    if not drawn:
        return None
    panels = [(f"figure-{number}", fig) for number, (_, fig) in enumerate(drawn)]
    less = f"Less than the paper: {'; '.join(condensed(reductions))}." if reductions else ""
    sections = [*([("less", less)] if less else []), *([("panels", panels)] if len(panels) > 1 else panels)]
    page.write(place, f"{preset.name}: {preset.title}", sections)
    image = place.with_suffix(".png")
    lines = 22 * (len(less) // 130)  # points; the sizes below have room for a line or two
    size = (900, 720 + lines) if len(panels) == 1 else (1132, 230 + lines + 450 * -(-len(panels) // 2))
    return image if picture(place, image, size) else place


def opening(
    preset: papers.Preset, rows: Sequence[Row], reductions: Sequence[str], scaled: Scaled | None = None
) -> list[page.Section]:
    """The sections that both pages start with: about, reductions, tables, claims."""
    lines = [preset.source, *([preset.about] if preset.about else [])]
    sections: list[page.Section] = [("about", "\n".join(lines))]
    if reductions:
        smaller = [
            "The printed numbers are not comparable: these runs are smaller than the paper's.",
            *condensed(reductions),
        ]
        sections.append(("reductions", "\n".join(smaller), "Less than the paper"))
    for number, (name, table) in enumerate(paper_table.tables(preset, rows)):
        sections.append((f"table-{number}", table, name))
    if drawn := figures.drawn(preset, rows, scaled):
        panels = [(f"figure-{number}", fig) for number, (_, fig) in enumerate(drawn)]
        sections.append(("figures", panels, "Figures" if len(panels) > 1 else "Figure"))
    if preset.claims:
        sections.append(("claims", claims.claim_table(claims.outcomes(preset, rows)), "Claims"))
    if preset.untestable:
        table = [["sentence", "why"], *[[one.sentence, one.why] for one in preset.untestable]]
        sections.append(("untestable", table, "What cannot be tested here"))
    return sections


def write_results_page(file: Path, path: Path) -> None:
    preset, rows = read_results(file)
    sections = opening(preset, rows, [sentence for row in rows for sentence in row["reductions"]])
    for column in dict.fromkeys(row["column"] for row in rows):
        fig = curves([row for row in rows if row["column"] == column], preset.headline.name)
        sections.append((f"curves-{safe(column)}", fig, column))
    page.write(path, f"{preset.name}: {preset.title}", sections)


def curves_of(rows: Sequence[Row], metric: str) -> Any:
    """Stage G over the rounds, from the runs, or from their lines if some of them were run before."""
    if any("run" not in row for row in rows):
        return curves([row for row in rows if row.get("curve")], metric)
    runs = [RunCurve(row["row"], Path(row["run"])) for row in rows]
    return plots.bands(runs, metric, ("G", "global"))


def curves(rows: Sequence[Row], metric: str) -> Any:
    """Stage G over the rounds, one line per result."""
    several = len({row["seed"] for row in rows}) > 1
    fig = plots.figure(plots.STAGES["G", "global"], "round", metric)
    for row in rows:
        name = f"{row['row']}, seed {row['seed']}" if several else row["row"]
        fig.add_scatter(x=list(range(1, len(row["curve"]) + 1)), y=row["curve"], mode="lines", name=name)
    return fig
