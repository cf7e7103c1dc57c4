"""The public battery for a part (`check`), and small federations and networks to test it with."""

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
