"""Results for a paper: the table as LaTeX, all numbers as CSV, the figures as SVG and PDF.

Figures are drawn with matplotlib (an extra): it writes SVG and PDF by itself and runs without a display. plotly, which
draws the pages, needs a browser for either. Both draw the same figure objects, so page and paper show the same values.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.experiment.tables import headline_of
from undrift.study.standings import Row, columns_of, results_table

ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "—": "---", "−": "$-$",
}  # fmt: skip


def latex(rows: Sequence[Row], rank_by: str | None = None) -> str:
    """The results as a LaTeX table (booktabs): mean ± std over seeds, the best of each column in bold."""
    head, *lines = [line[:-1] for line in results_table(rows, rank_by)]  # without seconds
    headline = headline_of(rows)
    numbers = [[found for line in lines if (found := number(line[i])) is not None] for i in range(1, len(head))]
    best = [headline.choose(column) if column else None for column in numbers]
    body = []
    for line in lines:
        cells = [
            rf"\textbf{{{escaped(cell)}}}" if top is not None and number(cell) == top else escaped(cell)
            for cell, top in zip(line[1:], best)
        ]
        body.append(" & ".join([escaped(line[0]), *cells]) + r" \\")
    seeds = len({row["seed"] for row in rows})
    unit = f"{headline.name}{' in percent' * headline.percent}"
    what = f"{unit}, mean ± std over {seeds} seeds" if seeds > 1 else f"{unit}, one seed"
    return "\n".join(
        [
            rf"% {what}; needs \usepackage{{booktabs}}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule",
            " & ".join(escaped(cell) for cell in head) + r" \\", r"\midrule", *body, r"\bottomrule", r"\end{tabular}", "",
        ]
    )  # fmt: skip


def number(cell: str) -> float | None:
    """The mean in a cell, if it has one."""
    try:
        return float(cell.split(" ")[0])
    except ValueError:
        return None


def escaped(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def csv_text(rows: Sequence[Row]) -> str:
    """One line per run: method, seed, every column of the results with all its digits (shares as fractions), seconds, folder."""
    file, columns = io.StringIO(), columns_of(rows)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["method", "seed", "rounds", *columns, "seconds", "run"])
    for row in rows:
        values = ["" if value(row) is None else value(row) for value in columns.values()]
        writer.writerow(
            [row["method"], row["seed"], row.get("rounds", ""), *values, row["seconds"], row.get("run", "")]
        )
    return file.getvalue()


def write_figures(folder: Path, sections: Sequence[Any]) -> list[Path]:
    """Every line figure of these sections as FOLDER/ID.svg and FOLDER/ID.pdf."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise BadRequest("--figures needs matplotlib, which is not installed: pip install 'undrift[figures]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    # Text stays text in an SVG, and letters in a PDF are embedded as outlines that journals accept.
    with mpl.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "undrift"}):
        for name, figure, *_ in sections:
            if hasattr(figure, "to_dict") and figure.data:
                drawn = draw(figure.to_dict())
                for kind, when in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
                    drawn.savefig(folder / f"{name}.{kind}", metadata=when, bbox_inches="tight")
                    written.append(folder / f"{name}.{kind}")
    return written


def draw(figure: dict[str, Any]) -> Any:
    """A plotly figure of lines, marks and bands as a matplotlib figure."""
    from matplotlib.figure import Figure

    from undrift.report.plots import COLOURS

    drawn = Figure(figsize=(6.4, 4.0))
    axes, layout = drawn.add_subplot(), figure["layout"]
    lines = 0
    for trace in (trace for trace in figure["data"] if trace.get("type") == "scatter"):
        x, y = list(trace["x"]), list(trace["y"])
        if trace.get("fill") == "toself":
            axes.fill(x, y, color=trace["fillcolor"], alpha=trace.get("opacity", 0.2), linewidth=0)
            continue
        colour = (trace.get("line") or {}).get("color") or COLOURS[lines % len(COLOURS)]
        lines += 1
        stepped = "steps-post" if (trace.get("line") or {}).get("shape") == "hv" else "default"
        mode = trace.get("mode", "lines")
        axes.plot(x, y, color=colour, label=trace.get("name"), linestyle="-" if "lines" in mode else "",
                  marker="o" if "markers" in mode else "", markersize=3, linewidth=1.4, drawstyle=stepped)  # fmt: skip
    axes.set_title(layout["title"]["text"], fontsize=10, loc="left")
    for axis, set_label in (("xaxis", axes.set_xlabel), ("yaxis", axes.set_ylabel)):
        set_label(layout[axis]["title"]["text"])
    if layout["xaxis"].get("type") == "log":
        axes.set_xscale("log")
    axes.grid(color="#ebf0f8")
    axes.spines[["top", "right"]].set_visible(False)
    if 0 < lines <= 20:
        axes.legend(fontsize=7, frameon=False)
    return drawn
