"""A power cut loses at most the rounds since the last checkpoint, wherever it falls and whatever the disk had by then."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

import undrift as ud
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.options import from_keywords
from undrift.experiment.resume import DamagedRun
from undrift.experiment.setup import build_federation

spec = importlib.util.spec_from_file_location("power", Path(__file__).with_name("power.py"))
assert spec is not None
assert spec.loader is not None
power = importlib.util.module_from_spec(spec)
sys.modules["power"] = power  # dataclasses look their module up
spec.loader.exec_module(power)

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of small files that need no disk
TRACES = shutil.which("strace") is not None and subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode == 0
needs_strace = pytest.mark.skipif(not TRACES, reason="system calls are recorded with strace, which must be allowed to")


def different_cuts(place: Path, method: str, every: int, stop: int) -> list:
    """Cuts with different disks, in order: for each only the first."""
    source = str(Path(ud.__file__).parent.parent)
    found: dict = {}
    for cut in power.cuts(*power.record(place, method, every, stop, source)):
        found.setdefault(cut.key(), cut)
    return list(found.values())


def broken(cut, federation, sha256: str | None = None) -> str | None:
    """What a power cut broke, or None. With `sha256`, the run is also resumed to its end."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        folder = cut.write(Path(place))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DamagedRun)  # that the last rounds are lost is said, and here expected
                result = ud.load(folder, federation=federation)
            result._store.close()
            if result.server_state.round < min(cut.promised, power.SETTINGS["rounds"]):
                return f"round {result.server_state.round} is loaded, {cut.promised} was promised"
            if cut.promised == power.FINISHED and not model_is_whole(folder):
                return "the model is not the one in the record"
            if sha256 is not None:
                resumed = ud.resume(folder, federation=federation).summary["model_sha256"]
                return None if resumed == sha256 and model_is_whole(folder) else "another model after the resume"
        except Exception as error:
            if cut.promised < 0 and isinstance(error, (BadRequest, RunFailed)):
                return None  # nothing was promised: a sentence is enough
            return f"{type(error).__name__}: {str(error).replace(place, '')}"
        return None


def model_is_whole(folder: Path) -> bool:
    db = sqlite3.connect(folder / "run.sqlite")
    found = db.execute("SELECT sha256 FROM files WHERE path = 'model.safetensors'").fetchall()
    db.close()
    return found == [(hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),)]


def check(place: Path, method: str, every: int, stop: int, loads: int | None, resumes: int) -> list:
    """All different cuts of a run. `loads` of them (None: all) must load, and `resumes` of these give the same model."""
    federation = build_federation(from_keywords({"method": method, **power.SETTINGS}))
    sha256 = ud.run(method, federation, out=False, **power.SETTINGS).summary["model_sha256"]
    found = different_cuts(place, method, every, stop)
    draw = random.Random(7)
    chosen = found if loads is None else draw.sample(found, loads)
    resumed = set(draw.sample([cut.calls for cut in chosen], resumes))
    problems = []
    for cut in chosen:
        problem = broken(cut, federation, sha256 if cut.calls in resumed else None)
        if problem is not None:
            problems.append((cut.calls, cut.promised, cut.loss, problem))
    assert problems == [], f"{len(problems)} of {len(chosen)}"
    return found


@needs_strace
def test_a_power_cut_loses_at_most_the_rounds_since_the_last_checkpoint(tmp_path):
    check(tmp_path, "scaffold+fliu", every=2, stop=3, loads=100, resumes=4)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "every", "stop"), [("fedavg", 1, 3), ("scaffold+fliu", 1, 99), ("scaffold+fliu", 2, 4)]
)
def test_a_power_cut_after_any_system_call_loses_at_most_the_rounds_since_the_last_checkpoint(
    method, every, stop, tmp_path
):
    found = check(tmp_path, method, every, stop, loads=None, resumes=40)
    after_the_first = {cut.calls for cut in found if cut.promised >= 0}
    assert len(after_the_first) >= 200
