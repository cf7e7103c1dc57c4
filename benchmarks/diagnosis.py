"""The diagnosis of `undrift advise` against the truth: simulated wrong labels and simulated feature skew.

    UNDRIFT_DATA=FOLDER python benchmarks/diagnosis.py [--seeds 3] [--data digits mnist] [--results docs/results/diagnosis.jsonl]

Wrong labels: 0 to 40 % of the labels are symmetric noise, spread over all clients or gathered at some, under four partitions.
Feature skew: half of the clients see their images rotated, blurred or noisy, in five strengths each. 20 clients. Every line
has what was simulated and what was found. docs/advise.md is rendered from them (`python docs/make_advise.py`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import undrift as ud
from undrift.advice.diagnosis import inputs
from undrift.advice.drawn import drawn
from undrift.core.determinism import one_thread
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


def wrong_labels(data: str, seed: int) -> Iterator[dict[str, Any]]:
    for partition in PARTITIONS:
        for rate in RATES:
            for where, unit in UNITS.items():
                if not rate and where == "gathered":
                    continue
                noise = f"symmetric({rate}, unit={unit})" if rate else None
                federation = ud.federate(data, partition, CLIENTS, noise=noise, seed=seed)
                rows = np.concatenate([federation.rows(client) for client in range(federation.clients)])
                found = {finding.name: finding.value for finding in inputs(drawn(federation), federation)}
                yield {
                    "measure": "wrong labels", "data": data, "partition": partition, "rate": rate, "where": where, "seed": seed,
                    "truth": round(float(changed(federation)[rows].mean()), 4), "found": rounded(found["label_noise"]),
                    "feature_skew": rounded(found["feature_skew"]),
                }  # fmt: skip


def feature_skew(data: str, seed: int) -> Iterator[dict[str, Any]]:
    for transform, strengths in STRENGTHS.items():
        for strength in strengths:
            federation = ud.federate(
                data, "dirichlet(0.5)", CLIENTS, domains=f"identity+{transform}({strength})", seed=seed
            )
            found = {finding.name: finding.value for finding in inputs(drawn(federation), federation)}
            yield {
                "measure": "feature skew", "data": data, "partition": "dirichlet(0.5)", "transform": transform, "strength": strength,
                "seed": seed, "found": rounded(found["feature_skew"]), "label_noise": rounded(found["label_noise"]),
            }  # fmt: skip


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--data", nargs="+", default=["digits", "mnist"])
    read.add_argument("--results", type=Path)
    asked = read.parse_args()
    command = f"python benchmarks/diagnosis.py --seeds {asked.seeds} --data {' '.join(asked.data)}"
    about = {"clients": CLIENTS, "command": command, "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    lines = []
    with one_thread():
        for data in asked.data:
            for seed in range(asked.seeds):
                for line in (*wrong_labels(data, seed), *feature_skew(data, seed)):
                    lines.append(line | about)
                print(f"{data}, seed {seed}: {len(lines)} lines")
    if asked.results is not None:
        asked.results.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()
