"""Generated input: nothing ends in a traceback, nothing hangs, every refusal is one sentence with a fix. `make soak` runs
ten times as many cases."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import commands, soak

KINDS = {"commands": 180, "files": 80, "calls": 40}
PARTS = 2  # of each kind, so that workers share them


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_generated_input_works_or_is_refused_in_one_sentence(kind, part, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UNDRIFT_CORES", "1")
    share = KINDS[kind] // PARTS
    found = soak.soak(kind, range(part * share, (part + 1) * share), seed=1, home=tmp_path)
    faults = [f"{what}\n{outcome.kind}: {outcome.detail}" for what, outcome in found if outcome.fault]
    assert len(found) == share
    assert not faults, "\n".join(faults[:3])
    assert any(outcome.kind == "refused" for _, outcome in found)
    assert any(outcome.kind == "worked" for _, outcome in found)


def test_the_same_seed_gives_the_same_cases():
    lines = [[commands.command_line(random.Random(f"0/{n}")) for n in range(50)] for _ in range(2)]
    assert lines[0] == lines[1]
