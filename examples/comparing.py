"""Comparing methods: same federations, same cohorts, same start, several seeds.

The script runs FedAvg and SCAFFOLD on three skewed federations and prints mean ± std, the rank, and the paired
difference to the first method with its 95 % interval. FedProx with μ = 0 is a control: it equals FedAvg. The script writes
a page with the curves beside the runs.

    python examples/comparing.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import undrift as ud

METHODS = ["fedavg", "fedprox(mu=0)", "scaffold"]


def main(folder: Path) -> None:
    compared = ud.compare(
        METHODS, seeds=3, clients=8, partition="dirichlet(0.1)", model="mlp(16)", rounds=5, out=folder / "compared"
    )
    print(compared)
    page = compared.report()
    print(f"{page.relative_to(folder)}: {page.stat().st_size // 1024} KB, opens without a network")

    models = {(row["method"], row["seed"]): row["model_sha256"] for row in compared.rows}
    same = all(models["fedavg", seed] == models["fedprox(mu=0)", seed] for seed in range(3))
    print(f"fedprox(mu=0) is fedavg in every seed: {same}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
