"""The diagnosis of `undrift advise` against the truth: simulated wrong labels and simulated feature skew.

    UNDRIFT_DATA=FOLDER python benchmarks/diagnosis.py [--seeds 3] [--data digits mnist] [--seconds 60]

Wrong labels: 0 to 40 % of the labels are symmetric noise, spread over all clients or gathered at some, under four partitions.
Feature skew: half of the clients see their images rotated, blurred or noisy, in five strengths each. 20 clients. Every line
of docs/results/diagnosis.jsonl has what was simulated and what was found; lines that are there are not measured again.
docs/advise.md is rendered from them (`python docs/make_advise.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import undrift as ud
from undrift.advice.diagnosis import inputs
from undrift.advice.drawn import drawn
from undrift.core.determinism import one_thread
from undrift.core.files import read_lines
from undrift.papers.results import machine
from undrift.report.label_distribution import changed

CLIENTS = 20
RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
PARTITIONS = ("iid", "dirichlet(0.5)", "dirichlet(0.1)", "pathological(1)")
UNITS = {"spread": "sample", "gathered": "client"}
STRENGTHS = {
    "rotated": (2, 5, 10, 20, 40),
    "blurred": (0.4, 0.5, 0.6, 0.8, 1.0),
    "noisy": (0.1, 0.15, 0.2, 0.3, 0.4),
}


def cells(data: str, seed: int) -> Iterator[dict[str, Any]]:
    """What is simulated, cell by cell."""
    for partition in PARTITIONS:
        for rate in RATES:
            for where in UNITS if rate else ("spread",):
                yield {
                    "measure": "wrong labels", "data": data, "partition": partition, "rate": rate, "where": where, "seed": seed,
                }  # fmt: skip
    for transform, strengths in STRENGTHS.items():
        for strength in strengths:
            yield {
                "measure": "feature skew", "data": data, "partition": "dirichlet(0.5)", "transform": transform, "strength": strength,
                "seed": seed,
            }  # fmt: skip


def measured(cell: dict[str, Any]) -> dict[str, Any]:
    """What is found in a cell, beside the truth."""
    noise = domains = None
    if rate := cell.get("rate"):
        noise = f"symmetric({rate}, unit={UNITS[cell['where']]})"
    if "transform" in cell:
        domains = f"identity+{cell['transform']}({cell['strength']})"
    federation = ud.federate(cell["data"], cell["partition"], CLIENTS, noise=noise, domains=domains, seed=cell["seed"])
    rows = np.concatenate([federation.rows(client) for client in range(federation.clients)])
    findings = {finding.name: finding for finding in inputs(drawn(federation), federation)}
    found = {name: finding.value for name, finding in findings.items()}
    unknown = {"unknown": True} if findings["label_noise"].details.get("unknown") else {}
    return unknown | {
        "wrong_labels": round(float(changed(federation)[rows].mean()), 4),
        "found_wrong_labels": rounded(found["label_noise"]), "found_feature_skew": rounded(found["feature_skew"]),
    }  # fmt: skip


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--data", nargs="+", default=["digits", "mnist"])
    read.add_argument("--results", type=Path, default=Path("docs/results/diagnosis.jsonl"))
    read.add_argument(
        "--seconds", type=float, default=math.inf, help="stop after so much processor time; go on another time"
    )
    asked = read.parse_args()
    about = {"clients": CLIENTS, "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    kept = read_lines(asked.results) if asked.results.exists() else []
    todo = [cell for data in asked.data for seed in range(asked.seeds) for cell in cells(data, seed)]
    todo = [cell for cell in todo if not any(cell.items() <= line.items() for line in kept)]
    with one_thread(), open(asked.results, "a", buffering=1) as file:
        for done, cell in enumerate(todo):
            if time.process_time() > asked.seconds:
                print(f"{len(todo) - done} cells are left")
                return
            file.write(json.dumps(cell | measured(cell) | about) + "\n")
    print("all cells are kept")


if __name__ == "__main__":
    main()
