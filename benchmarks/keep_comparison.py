"""Keep the rows of a comparison as a results file that pages are rendered from.

    python benchmarks/keep_comparison.py FOLDER FILE [STUDY]

FOLDER is what `undrift compare --out FOLDER` or `undrift demo` wrote. FILE gets one line per run: study, method, seed,
numbers, command, machine, date and versions. Lines of the same study are replaced.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import undrift
from undrift.papers.results import machine, torch_version
from undrift.report.report import compare_command
from undrift.study.tasks import read_rows

KEPT = ("method", "seed", "rounds", "accuracy", "model_sha256")


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a row that tables show."""
    stages: dict[str, Any] = {"G": {}}
    for stage in ("L1", "L2"):
        found = row["stages"].get(stage) or {}
        stages[stage] = {
            data: {name: round(found[data][name], 6) for name in ("mean", "worst_decile") if name in found[data]}
            for data in ("acc_local", "acc_global")
            if data in found
        }
    return {**{key: row[key] for key in KEPT}, "seconds": round(row["seconds"], 2), "stages": stages}


def main(folder: Path, file: Path, study: str) -> None:
    before = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    about = {
        "undrift": undrift.__version__,
        "torch": torch_version(),
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }
    command = compare_command(folder)
    by_task = sorted(read_rows(folder).items(), key=lambda item: (item[1]["seed"], item[0]))  # not as the runs ended
    lines = [{"study": study, **kept(row), "command": command, **about} for _, row in by_task]
    others = [line for line in before if line["study"] != study]
    file.write_text("".join(json.dumps(line) + "\n" for line in [*others, *lines]))


if __name__ == "__main__":
    place, target, *rest = sys.argv[1:]
    main(Path(place), Path(target), rest[0] if rest else Path(place).name)
