"""The bare loop on the same cohorts: what the training itself costs (undrift/bench/bare.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from common import InSession, task

sys.path.append(str(Path(__file__).parents[2] / "src" / "undrift" / "bench"))
import bare


def main() -> None:
    subprocess.Popen = InSession
    work = task()
    raw = work.variant == "kernel"
    job = bare.works(work.x, work.y, work.parts, work.parts, raw=raw)[work.work]
    loop = bare.Bare(job, len(os.sched_getaffinity(0)))
    note = "the fused kernel called directly" if raw else "torch.optim.SGD(fused=True)"
    for cohort in work.cohorts:
        work.gate(note, torch=version("torch"))
        loop.round(cohort)
    work.gate()
    loop.close()


main()
