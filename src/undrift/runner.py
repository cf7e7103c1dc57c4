"""`ud.run`, `ud.load`, and the folder of a run: from keywords to a finished run and back."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from undrift import text
from undrift.aggregate import World
from undrift.bits import one_thread
from undrift.engine.base import Engine
from undrift.engine.faulty import Faulty
from undrift.engine.inline import Inline
from undrift.engine.processes import Processes
from undrift.engine.spawn import Worker, cores, start_workers
from undrift.errors import BadRequest
from undrift.federation import Federation
from undrift.loop import Loop, Watcher
from undrift.options import FIELDS, Options, from_keywords, write_toml
from undrift.result import Result
from undrift.selection import Uniform
from undrift.setup import Setup, prepare
from undrift.store.vault import Vault, written


def run(
    method: Any = "fedavg",
    federation: Federation | None = None,
    *,
    watcher: Watcher | None = None,
    parts: list[str] | None = None,
    checkpoint_every: int | None = None,
    started: list[Worker] | Engine | None = None,
    **keywords: Any,
) -> Result:
    """Run a method on a federation. Keywords are the options of `undrift run`; `out=False` keeps nothing on disk.

    >>> result = run("fedavg", rounds=2, clients=4, out=False)
    >>> sorted(result.summary)[:3]
    ['accuracy', 'failures', 'method']
    """
    options = from_keywords({"method": method, **keywords})
    setup = prepare(options, federation, parts)
    folder = None if options.out is False else claimed(options, setup)
    vault = Vault(folder, int(options.memory * 10**9), checkpoint_every)
    try:
        if folder is not None:
            write_toml(folder / "run.toml", resolved(setup), about(setup))
        result = execute(setup, vault, watcher, started=started)
    except BaseException as error:
        refused = isinstance(error, BadRequest) and not vault.record.all("SELECT round FROM rounds LIMIT 1")
        vault.close()
        if folder is not None and refused:
            shutil.rmtree(folder)  # an engine that cannot start leaves no empty run behind
        raise
    if folder is not None:
        vault.close()  # a run in memory stays open: its result reads from it
    return result


def execute(
    setup: Setup,
    vault: Vault,
    watcher: Watcher | None,
    world: World | None = None,
    started: list[Worker] | Engine | None = None,
) -> Result:
    engine = engine_for(setup, vault, started, getattr(watcher, "line", None))
    try:
        if setup.faults:
            engine = Faulty(engine, setup.faults, setup.plan)
        began = getattr(watcher, "began", None)
        if began is not None:
            began(setup, engine)
        loop = Loop(setup, engine, vault, watcher)
        with one_thread():
            world = world or loop.begin()
            engine.ready()
            world = loop.run(world)
        ended = getattr(watcher, "ended", None)
        if ended is not None:
            ended(loop.clock.evaluation_share())
    except KeyboardInterrupt:
        if vault.folder is None:
            raise
        raise KeyboardInterrupt(f"stopped; nothing is lost: `undrift resume {vault.folder}` goes on") from None
    finally:
        engine.close()
    if vault.folder is not None:
        export(setup, vault, world)
    return Result(setup, vault, world)


def engine_for(
    setup: Setup, vault: Vault, started: list[Worker] | Engine | None, say: Callable[[str], None] | None = None
) -> Engine:
    """The engine asked for; `auto` takes processes where there is enough to share, and says why."""
    options = setup.options
    if isinstance(started, Engine):
        return started.open(setup.site, vault.states)
    name, why = options.engine, "asked for"
    if name == "auto":
        name, why = automatic(setup, options.workers or cores())
    if name == "ray":
        from undrift.engine.ray import Ray

        return Ray(options.ray_address, options.workers, options.device, say).open(setup.site, vault.states)
    if name == "flower":
        raise BadRequest("the flower engine runs at real sites; `undrift deploy init FOLDER` writes what they need")
    if name == "processes":
        return Processes(started or start_workers(options.workers), why, lent=started is not None).open(
            setup.site, vault.states
        )
    return Inline(setup.site, vault.states, why)


def automatic(setup: Setup, workers: int) -> tuple[str, str]:
    if setup.site.model.device.type != "cpu":
        return "inline", "one device does the work"
    if workers < 2:
        return "inline", "one core"
    try:
        seconds = expected_seconds(setup)
    except Exception:  # the user's model or loss raises: let it do so in a client's hands, which says who and when
        return "inline", "one step could not be timed"
    if seconds < WORTH_IT:
        return "inline", f"about {seconds:.0f} s of training, too little to share"
    return "processes", f"about {seconds:.0f} s of training to share"


WORTH_IT = 15.0  # seconds of training below which starting workers costs more than it gains


def expected_seconds(setup: Setup) -> float:
    """One step, timed, times the steps of the run."""
    plan, site, federation = setup.plan, setup.site, setup.federation
    x, y = federation.x[: plan.batch], federation.y[: plan.batch]
    with one_thread():
        seconds = math.inf
        for _ in range(3):
            began = time.perf_counter()
            site.spare(0).module.eval()
            loss = site.loss(site.spare(0)(site.network(x)), y).mean()
            torch.autograd.grad(loss, site.spare(0).parameters, allow_unused=True)
            seconds = min(seconds, time.perf_counter() - began)
    steps = plan.rounds * (plan.cohort or plan.clients) * plan.epochs * federation.total / plan.clients / plan.batch
    return steps * seconds


def export(setup: Setup, vault: Vault, world: World) -> None:
    """`model.safetensors`: an ordinary state dict of the judged model (its shared entries, where some are private)."""
    assert vault.folder is not None
    state = setup.site.model.state_dict(world.judged, world.integers)
    private = setup.method.private_names(setup.plan.layout)
    state = {name: value for name, value in state.items() if name not in private}
    data = safetensors.torch.save(unshared(state), metadata={"model": setup.model_name, "format": "pt"})
    written(vault.folder / "model.safetensors", data)
    digest = hashlib.sha256(data).hexdigest()
    with vault.record.transaction():
        vault.record.db.execute("DELETE FROM files WHERE path = 'model.safetensors'")
        vault.record.db.execute("INSERT INTO files VALUES (?,?,?)", (world.round, "model.safetensors", digest))


def unshared(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tied names get a copy each: safetensors refuses tensors that share memory."""
    return {name: value.clone() for name, value in state.items()}


def resolved(setup: Setup) -> dict[str, Any]:
    """Every option with the value it has in this run; objects that text cannot name are written as their repr."""
    values: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(setup.options, name)
        if name in ("out", "force", *AXIS_OPTIONS):
            continue
        if isinstance(value, os.PathLike):
            value = str(value)
        values[name] = value if value is None or isinstance(value, (str, int, float, tuple)) else words(value)
    values["method"] = setup.method.name
    if isinstance(setup.selection, Uniform):
        values["cohort"] = setup.selection.cohort
    given = setup.options.model
    values["model"] = setup.model_name if given is None or isinstance(given, str) else f"object:{setup.model_name}"
    if setup.federation.spec is not None:
        values.update({k: v for k, v in setup.federation.spec.items() if k in FIELDS})
    else:
        values.update({"data": f"object:{setup.federation.name}", "clients": setup.federation.clients})
    values["parts"] = [part_words(part) for part in setup.method.parts]
    return values


AXIS_OPTIONS = ("sampling", "objective", "personalize", "weighting", "combine", "server", "private")


def part_words(part: Any) -> str:
    """A shipped part as the text that makes it again; a user's own as what it says of itself."""
    ours = text.part_tables()[part.axis].get(part.name) is type(part)
    return f"{part.axis}.{text.spell(part)}" if ours else f"{part.axis}.object:{part!r}"


def words(value: Any) -> str:
    try:
        return text.spell(value)
    except BadRequest:
        return f"object:{type(value).__module__}.{type(value).__qualname__}"


def about(setup: Setup) -> dict[str, Any]:
    """What made this run: versions and the settings that change bits."""
    import numpy

    import undrift

    return {
        "undrift": undrift.__version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": numpy.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "machine": platform.machine(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "federation": setup.federation.fingerprint,
        "layout": setup.plan.layout.signature, "dealt": setup.federation.told(),
        "environment": {
            name: os.environ[name]
            for name in ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY") if name in os.environ
        },
    }  # fmt: skip


def claimed(options: Options, setup: Setup) -> Path:
    """The run's folder, made for it: the next free name, or the one asked for."""
    if options.out is None:
        method = re.sub(r"[^A-Za-z0-9.@+-]+", "_", setup.method.name).strip("_")[:60]
        data = re.sub(r"[^A-Za-z0-9.-]+", "_", Path(setup.federation.name).stem or "data")
        return next_free(Path("runs"), f"{data}-{method}")
    folder = Path(options.out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not options.force:
            raise BadRequest(f"{folder} is taken; {free_name(folder)} is free, and --force moves the old one aside")
        folder.rename(free_name(folder.with_name(folder.name + ".old")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".write-test").write_bytes(b"x" * 4096)
        (folder / ".write-test").unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
    return folder


def free_name(folder: Path) -> Path:
    number = 1
    while (other := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return other


def next_free(parent: Path, stem: str) -> Path:
    number = 1
    while True:
        folder = parent / f"{stem}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None


assert {f.name for f in fields(Options)} >= set(AXIS_OPTIONS)
