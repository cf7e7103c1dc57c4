"""A run killed with kill -9 at random moments and resumed each time: the same model, no row missing or doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("methods", [("fedavg", "scaffold"), ("fliu", "fedmr")], ids="+".join)  # inline, on processes
def test_runs_survive_kill_9_at_random_moments(methods):
    script = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(script), "--kills", "5", "--rounds", "200", "--methods", *methods],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
