"""Draw the accuracy over the rounds of saved results.

python benchmarks/curves.py bound-table1        # docs/results/bound-table1.jsonl -> .png (needs chromium)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from undrift.papers import pages, results
from undrift.report.picture import picture

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def main(name: str) -> None:
    preset, rows = results.read_results(RESULTS / f"{name}.jsonl")
    fig = pages.curves(rows)
    fig.update_layout(title=preset.title, width=1000, height=460)
    for row in rows:
        last = np.array(row["curve"][-(len(row["curve"]) // 4) :])
        print(
            f"{row['row']}, {row['column']}: last quarter of {row['rounds']} rounds {last.mean():.4f} ± {last.std():.4f}"
        )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        fig.write_html(page, config={"displayModeBar": False})
        picture(page, RESULTS / f"{name}.png", (1010, 470))


if __name__ == "__main__":
    main(sys.argv[1])
