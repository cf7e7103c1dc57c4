"""What all tests need."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell that starts tests in the background makes them deaf to Ctrl-C, and with them every process they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
