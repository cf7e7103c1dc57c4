"""The processes engine gives inline's bits, replaces dead workers, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.contract.parts import Job, Objective
from undrift.core.errors import RunFailed
from undrift.engine.pool import chunked
from undrift.engine.spawn import start_workers, stop_workers
from undrift.experiment.resume import resume
from undrift.methods.naming import method
from undrift.methods.published import PUBLISHED
from undrift.round.lockstep.decide import part_refuses
from undrift.round.orders import Order
from undrift.testing import adapted_network, needs_adapters, small_network, tiny

SETTINGS = {"rounds": 4, "epochs": 2, "batch": 8, "momentum": 0.5, "cohort": 3, "evaluate_every": 2, "proxy": 0}
TEXT = {"trimmed": "trimmed(0.4)"}  # with the default a cohort of three has no client to trim
NEED_MORE = {"fedlaw": "proxy", "aflama": "proxy", "krum": "many", "multikrum": "many"}  # tested in their own files


@pytest.fixture(scope="module")
def workers():
    """One pool for all tests, because starting workers is slow."""
    started = start_workers(2)
    yield started
    stop_workers(started)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in NEED_MORE])
def test_every_method_gives_the_same_bits_inline_and_on_processes(name, workers, two_threads):
    federation = tiny(clients=5)

    def network():
        make = partial(adapted_network, merged=True) if needs_adapters(name) else small_network
        return make(5, 3, norm=True, dropout=0.2)

    settings = {**SETTINGS, "model": network, "out": False}
    name = TEXT.get(name, name)
    inline = ud.run(name, federation, engine="inline", **settings)
    spread = ud.run(name, federation, engine="processes", started=workers, **settings)
    assert two_threads() == 2
    assert torch.equal(inline.vector, spread.vector)
    stages = [
        result.rows("SELECT * FROM metrics ORDER BY round, client, stage, data, metric") for result in (inline, spread)
    ]
    assert stages[0] == stages[1]


LOCKSTEP = {"rounds": 2, "cohort": 1.0, "lockstep": "on", "out": False}
FEW = ("fedavg", "scaffold", "flood", "fedlc", "fedrep", "fedbss+fliu")
ABLE = [
    name
    for name in PUBLISHED
    if name not in NEED_MORE and not needs_adapters(name) and not any(map(part_refuses, method(name).parts))
]


@pytest.fixture(scope="module")
def three_workers():
    three = start_workers(3)
    yield three
    stop_workers(three)


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in ABLE if name not in FEW)]
)
def test_lockstep_gives_the_same_bits_inline_and_with_one_two_or_three_workers(name, three_workers):
    federation = tiny(clients=9)
    options = {**LOCKSTEP, "model": lambda: small_network(5, 3, norm=name == "fedbn")}
    inline = ud.run(TEXT.get(name, name), federation, engine="inline", **options)
    assert inline.setup.plan.lockstep
    for count in (1, 2, 3):
        spread = ud.run(TEXT.get(name, name), federation, engine="processes", started=three_workers[:count], **options)
        assert torch.equal(inline.vector, spread.vector)
        assert inline.summary["stages"] == spread.summary["stages"]


@dataclass(frozen=True)
class Deadly(Objective):
    """Kills its own process in round 1 at client 2, `times` times. A file counts the kills."""

    memo: str
    times: int = 1

    def before_training(self, job: Job, state, server_message):
        if job.round == 1 and job.client == 2:
            deaths = Path(self.memo)
            done = len(deaths.read_text()) if deaths.exists() else 0
            if done < self.times:
                deaths.write_text("x" * (done + 1))
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_in_mid_round_is_replaced_and_its_work_redone_with_the_same_result(tmp_path):
    federation = tiny(clients=4)
    model = {"model": lambda: small_network(5, 3), "out": False, **SETTINGS, "cohort": 1.0}
    calm = ud.run(Deadly(str(tmp_path / "no"), times=0), federation, engine="inline", **model)
    hit = ud.run(Deadly(str(tmp_path / "memo")), federation, engine="processes", workers=2, **model)
    assert torch.equal(calm.vector, hit.vector)
    (failure,) = hit.summary["failures"]
    assert failure["kind"] == "worker"
    assert failure["client"] is None
    assert failure["round"] == 1
    assert "signal 9" in failure["detail"]


def test_workers_that_die_on_every_try_end_the_run_which_stays_resumable(tmp_path):
    federation = tiny(clients=4)
    memo, out = tmp_path / "memo", tmp_path / "run"
    part = Deadly(str(memo), times=3)
    settings = {"model": lambda: small_network(5, 3), **SETTINGS, "cohort": 1.0}
    with pytest.raises(RunFailed, match="died 3 times over the work of client 2 in round 1"):
        ud.run(part, federation, engine="processes", workers=2, out=out, **settings)
    calm = ud.run(Deadly(str(memo), times=0), federation, engine="inline", out=False, **settings)
    result = resume(out, method=part, federation=federation, model=settings["model"], engine="inline")
    assert torch.equal(result.vector, calm.vector)
    assert result.summary["rounds"] == 4


def test_no_worker_outlives_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom undrift.engine.spawn import start_workers\n"
        "workers = start_workers(2)\nprint(*[w.process.pid for w in workers], flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_plain_script_without_a_main_guard_and_with_its_own_model_runs_on_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, undrift as ud\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__(); self.f = torch.nn.Linear(64, 10)\n"
        "    def forward(self, x): return self.f(x.flatten(1))\n"
        "found = [ud.run('fedavg', model=Net, clients=4, rounds=2, engine=engine, workers=2, out=False).vector\n"
        "         for engine in ('processes', 'inline')]\n"
        "print(torch.equal(*found))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr


def test_orders_go_largest_first_in_chunks_that_shrink():
    sizes = [1] * 90 + [30, 50]
    orders = [Order("train", 0, k, torch.zeros(1), {}, size=size) for k, size in enumerate(sizes)]
    chunks = chunked(orders, workers=2)
    assert chunks[:2] == [[91], [90]]
    assert sorted(p for chunk in chunks for p in chunk) == list(range(92))
    costs = [sum(sizes[p] for p in chunk) for chunk in chunks]
    assert costs == sorted(costs, reverse=True)
    assert len(chunks) < len(orders) / 2
    assert costs[-1] == 1


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="the scheduler can be asked on Linux only")
def test_a_worker_that_wakes_up_does_not_take_its_parents_core():
    """It would start before the other workers have their orders."""
    workers = start_workers(1)
    try:
        deadline = time.monotonic() + 60
        while os.sched_getscheduler(workers[0].process.pid) != os.SCHED_BATCH and time.monotonic() < deadline:
            time.sleep(0.01)  # until its first lines have run
        assert os.sched_getscheduler(workers[0].process.pid) == os.SCHED_BATCH
    finally:
        stop_workers(workers)
