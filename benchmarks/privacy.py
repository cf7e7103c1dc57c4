"""What privacy costs: accuracy against ε, client-level differential privacy on Fashion-MNIST.

    UNDRIFT_DATA=FOLDER python benchmarks/privacy.py [--seeds 3] [--rounds 40] [--workers 1]

2,000 clients draw 60 images each (`resample(60)`). Each takes part in a round with probability 0.1. One line of JSON per
finished run is appended to docs/privacy.jsonl, so that a stopped study can be resumed. `python docs/make_privacy.py`
renders the table of docs/privacy.md and the figure from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "privacy.jsonl"
EPSILONS = (None, 4.0, 1.0, 0.3, 0.1)  # None: clipped as well, without noise
CLIP = 0.5
CLIENTS = 2000
SETTINGS = {
    "clients": CLIENTS, "selection": "probability(0.1)", "model": "mlp(32)", "epochs": 5, "batch": 32, "lr": 0.05, "momentum": 0.0,
    "evaluate_every": 1000, "evaluate_clients": 1, "out": False,
}  # fmt: skip


def done() -> dict[tuple[float | None, int, int], dict]:
    """Finished runs by (ε, seed, rounds)."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {(row["asked"], row["seed"], row["rounds"]): row for row in map(json.loads, lines)}


def measure(asked: float | None, seed: int, rounds: int, workers: int | None = None) -> dict:
    import undrift as ud

    part = "dp(noise=0, clip={0})" if asked is None else f"dp(epsilon={asked}, clip={{0}})"
    began = time.perf_counter()
    federation = ud.federate("fashion-mnist", "resample(60)", clients=CLIENTS, seed=seed)
    options = {name: value for name, value in SETTINGS.items() if name != "clients"}
    result = ud.run(
        "fedavg", federation, rounds=rounds, seed=seed, upload=part.format(CLIP), workers=workers, **options
    )
    return {
        "asked": asked, "seed": seed, "rounds": rounds, "accuracy": result.accuracy, "privacy": result.summary["privacy"],
        "seconds": round(time.perf_counter() - began, 1), "settings": {**SETTINGS, "clip": CLIP, "data": "fashion-mnist"},
        "command": f"python benchmarks/privacy.py --rounds {rounds}", "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--workers", type=int, help="worker processes [one per core]")
    arguments = parser.parse_args()
    finished = done()
    for seed in range(arguments.seeds):
        for asked in EPSILONS:
            if (asked, seed, arguments.rounds) in finished:
                continue
            row = measure(asked, seed, arguments.rounds, arguments.workers)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"ε {'∞' if asked is None else asked}, seed {seed}: {100 * row['accuracy']:.1f} % ({row['seconds']} s)"
            )


if __name__ == "__main__":
    main()
