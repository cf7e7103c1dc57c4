"""What the tests of evaluation share."""

from __future__ import annotations

import pytest

from undrift import testing


@pytest.fixture(scope="session")
def tiny() -> testing.Toy:
    """Four clients of 24, 29, 34 and 39 samples, three classes, skewed."""
    return testing.tiny()
