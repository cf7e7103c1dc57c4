"""`check(part)` for your own parts, and small federations and networks to test them with."""

from __future__ import annotations

from undrift.testing.toys import (
    QUICK,
    Broken,
    LowRank,
    Outcome,
    Toy,
    adapted_network,
    check,
    half_square,
    needs_adapters,
    quadratics,
    run_parts,
    small_network,
    tiny,
)

__all__ = [
    "QUICK", "Broken", "LowRank", "Outcome", "Toy", "adapted_network", "check", "half_square", "needs_adapters", "quadratics",
    "run_parts", "small_network", "tiny",
]  # fmt: skip
