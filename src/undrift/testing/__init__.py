"""`check(part)` for your own parts, and small federations and networks to test them with."""

from __future__ import annotations

from undrift.testing.toys import (
    QUICK,
    Broken,
    Outcome,
    Toy,
    check,
    half_square,
    quadratics,
    run_parts,
    small_network,
    tiny,
)

__all__ = [
    "QUICK", "Broken", "Outcome", "Toy", "check", "half_square", "quadratics", "run_parts", "small_network", "tiny",
]  # fmt: skip
