"""Choose the engine of a run, with the reason that is shown to the user."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from undrift.core import system
from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest
from undrift.engine.inline import Inline
from undrift.engine.processes import Processes
from undrift.engine.spawn import Worker, cores, start_workers
from undrift.experiment.setup import Setup
from undrift.round.engine import Engine
from undrift.store.run_store import RunStore


def engine_for(
    setup: Setup, store: RunStore, started: list[Worker] | Engine | None, say: Callable[[str], None] | None = None
) -> Engine:
    """The engine of the options, opened. `auto` uses processes if there is enough training to share between workers."""
    options = setup.options
    if isinstance(started, Engine):
        return started.open(setup.runtime, store.states)
    name: str = options.engine
    why = "asked for"
    if name == "auto":
        name, why = choose_engine(setup, options.workers or cores())
    if name == "ray":
        from undrift.engine.ray import Ray

        return Ray(options.ray_address, options.workers, options.device, say).open(setup.runtime, store.states)
    if name == "flower":
        raise BadRequest(
            "the flower engine runs at real sites; `undrift deploy init FOLDER` writes the files they need"
        )
    if name == "processes":
        one = None if setup.runtime.model.device.type == "cpu" else 1  # a device is shared only if asked
        workers = started or start_workers(options.workers or one)
        return Processes(workers, why, keep_alive=started is not None).open(setup.runtime, store.states)
    return Inline(setup.runtime, store.states, why)


def choose_engine(setup: Setup, workers: int) -> tuple[str, str]:
    """(engine, reason) for `--engine auto`."""
    if setup.runtime.model.device.type != "cpu":
        if (setup.options.workers or 1) > 1 and system.starts_workers():
            return "processes", f"{setup.options.workers} processes share a device"
        return "inline", "one device does the work"
    if workers < 2:
        return "inline", "one core"
    if not system.starts_workers():
        return "inline", "worker processes need Linux or macOS"
    try:
        seconds = expected_seconds(setup)
    except (
        Exception
    ):  # the user's model or loss raises: it will again in a client's round, whose error names client and round
        return "inline", "one step could not be timed"
    if seconds < MIN_SHARED_SECONDS:
        return "inline", f"about {seconds:.0f} s of training, too little to share"
    return "processes", f"about {seconds:.0f} s of training to share"


MIN_SHARED_SECONDS = 15.0  # of training: below, starting workers costs more than it gains


def expected_seconds(setup: Setup) -> float:
    """Expected seconds of training: the time of one step (the best of three) × the number of steps of the run."""
    plan, runtime, federation = setup.plan, setup.runtime, setup.federation
    x, y = federation.x[: plan.batch], federation.y[: plan.batch]
    with one_thread():
        seconds = math.inf
        for _ in range(3):
            began = time.perf_counter()
            runtime.spare(0).module.eval()
            loss = runtime.sample_loss(runtime.spare(0)(runtime.network_input(x)), y).mean()
            torch.autograd.grad(loss, runtime.spare(0).parameters, allow_unused=True)
            seconds = min(seconds, time.perf_counter() - began)
    steps = plan.rounds * (plan.cohort or plan.clients) * plan.epochs * federation.total / plan.clients / plan.batch
    return steps * seconds
