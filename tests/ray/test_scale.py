"""The model of a round's time (undrift.bench.scale), by hand. `benchmarks/ray_scale.py model` holds it against the clock."""

from __future__ import annotations

import pytest

from undrift.bench.scale import RoundTime, predict


def test_the_model_by_hand():
    """Ten clients of 1 s, orders of 0.1 s, 0.5 s of the server: 0.5 + 11 s alone, 11/4 s on four cores; eleven machines
    are no faster than ten, and with a thousand clients the driver's 100 s are the limit."""
    alone = RoundTime(11.5, 11.0, (1.0,) * 10)
    assert alone.server == pytest.approx(0.5)
    assert alone.order == pytest.approx(0.1)
    assert predict(alone, [(1, 1)]) == pytest.approx(11.5)
    assert predict(alone, [(2, 2), (2, 2)]) == pytest.approx(0.5 + 11 / 4)
    assert predict(alone, [(3, 2)]) == pytest.approx(0.5 + 11 / 2)
    assert predict(alone, [(1, 1)] * 11) == pytest.approx(0.5 + 1.1)
    assert predict(alone, [(2, 2)], 1.5) == pytest.approx(0.5 + (15 + 1) / 2)
    assert predict(alone, [(2, 2)], carried=1e9, bandwidth=1e9) == pytest.approx(0.5 + 11 / 2 + 1)
    assert predict(RoundTime(1100.5, 1100.0, (1.0,) * 1000), [(8, 8)] * 100) == pytest.approx(100.5)
