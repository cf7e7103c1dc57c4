"""Your own method: one part, one hook.

FedAvg weighs a client by its number of samples, FedAvg-uniform weighs all clients equally. `Power` interpolates between
them: p_k ∝ n_k^power. The script checks the part against the contract and prints two laws: power 1 is FedAvg and power 0
is FedAvg-uniform, bit for bit. Then it composes the part with SCAFFOLD.

    python examples/own_method.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

import undrift as ud
from undrift.testing import check

SETTINGS = {"model": "mlp(16)", "rounds": 4, "cohort": 0.5, "out": False}


@dataclass(frozen=True)
class Power(ud.parts.Weighting):
    """p_k ∝ n_k^power. The engine normalises what `weights` returns."""

    power: Annotated[float, ud.parts.Range(least=0)] = 0.5

    def weights(self, server: ud.parts.Server, replies: ud.parts.Replies) -> torch.Tensor:
        return torch.tensor(replies.n, dtype=torch.float64) ** self.power


def main() -> None:
    check(Power())  # raises if a law is violated: no hidden state, no order of clients, only declared messages

    federation = ud.federate("digits", ud.partition.quantity_skew(0.5), clients=8, seed=0)

    def model(method: object) -> str:
        return ud.run(method, federation, **SETTINGS).summary["model_sha256"]

    fedavg, uniform = model("fedavg"), model("fedavg-uniform")
    print(f"power 1 is fedavg: {model(Power(1.0)) == fedavg}")
    print(f"power 0 is fedavg-uniform: {model(Power(0.0)) == uniform}")
    print(f"power 0.5 is neither: {model(Power()) not in (fedavg, uniform)}")

    together = ud.run(ud.method("scaffold", Power()), federation, **SETTINGS)
    print(together.table())


if __name__ == "__main__":
    main()
