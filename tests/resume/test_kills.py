"""A run killed with kill -9 at random moments and resumed each time: the same model, no row missing or doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "rounds"), [("sequence", 60), ("regression", 600)]
)  # seconds, so that a kill meets it
def test_runs_of_other_tasks_survive_it_too(task, rounds):
    script = Path(__file__).with_name("kills.py")
    options = ["--kills", "2", "--rounds", str(rounds), "--methods", "scaffold", "--task", task]
    done = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


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
