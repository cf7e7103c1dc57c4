"""`ud.run`: from keywords to a finished run."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
from typing import Any

from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest, RunFailed
from undrift.engine.faulty import Faulty
from undrift.engine.spawn import Worker
from undrift.experiment import kept_code
from undrift.experiment.callback import RunCallback
from undrift.experiment.engines import engine_for
from undrift.experiment.folders import claim_folder
from undrift.experiment.foreign_code import resume_command
from undrift.experiment.given import with_given
from undrift.experiment.options import Options, from_keywords
from undrift.experiment.result import Result
from undrift.experiment.run_toml import option_values, provenance, write_toml
from undrift.experiment.setup import Setup, prepare
from undrift.experiment.tracking import Tracked, tracked
from undrift.federation.federation import Federation
from undrift.round.engine import Engine
from undrift.store import checksums
from undrift.store.durable import write_file
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState
from undrift.store.weights import weights_file


def run(
    method: Any = "fedavg",
    federation: Federation | None = None,
    *,
    callback: RunCallback | None = None,
    parts: list[str] | None = None,
    checkpoint_every: int | None = None,
    started: list[Worker] | Engine | None = None,
    **keywords: Any,
) -> Result:
    """Run a method on a federation and return the result.

    `method` is a text ("flood+scaffold@bound"), a part, a method, or a list of these. `federation` comes from
    `ud.federate` or `ud.Federation`; without one, the keywords `data`, `partition`, `clients` … make it. The other
    keywords are the options of `undrift run`, with `_` for `-`: `rounds=100, lr=0.1, model="mlp(200)"`.

    The run is written to `out` (default runs/DATA-METHOD-N) and can be resumed with `ud.resume`; `out=False` writes nothing.
    `callback` (a `RunCallback`) is called after every round, `checkpoint_every=N` writes a checkpoint every N rounds.
    `parts` are the resolved parts of a run.toml, `started` is an engine or workers that already run.

    >>> result = run("fedavg", rounds=2, clients=4, out=False)
    >>> sorted(result.summary)[:3]
    ['accuracy', 'failures', 'method']
    """
    options = from_keywords({"method": method, **with_given(keywords, federation)})
    return run_options(options, federation, callback, parts, checkpoint_every, started)


def run_options(
    options: Options,
    federation: Federation | None = None,
    callback: RunCallback | None = None,
    parts: list[str] | None = None,
    checkpoint_every: int | None = None,
    started: list[Worker] | Engine | None = None,
) -> Result:
    """`run` without the check that the options ask for no other federation: a study builds it from the same options."""
    setup = prepare(options, federation, parts)
    folder = None if options.out is False else claim_folder(options, setup)
    store = RunStore(folder, int(options.memory * 10**9), checkpoint_every)
    try:
        if folder is not None:
            kept_code.keep(folder, option_values(setup))
            write_toml(folder / "run.toml", option_values(setup), {"about": provenance(setup)}, store.record)
        result = execute(setup, store, callback or RunCallback(), started=started)
    except BaseException as error:
        refused = isinstance(error, BadRequest) and not store.record.all("SELECT round FROM rounds LIMIT 1")
        store.close()
        if folder is not None and refused:
            shutil.rmtree(folder)  # an engine that could not start: leave no empty run
        raise
    if folder is not None:
        store.close()  # without a folder the store stays open: the result reads from it
    return result


def execute(
    setup: Setup,
    store: RunStore,
    callback: RunCallback,
    server_state: ServerState | None = None,
    started: list[Worker] | Engine | None = None,
) -> Result:
    """Run the rounds of a setup, from `server_state` or from the start, and write the final model."""
    settings = {name: value for name, value in option_values(setup).items() if value is not None}
    callback = tracked(callback, setup.options.track, store.folder, settings, server_state is not None)
    try:
        return execute_rounds(setup, store, callback, server_state, started)
    except Exception as error:
        note_failure(store, error)
        raise
    finally:
        if isinstance(callback, Tracked):
            callback.close()


def note_failure(store: RunStore, error: Exception) -> None:
    """Keep why a run failed, under the round that it failed in, so that the live page tells it from a stopped one. A
    resume computes the round again, and the event is gone."""
    if isinstance(error, BadRequest):
        return
    with contextlib.suppress(RunFailed, sqlite3.Error, OSError):  # a full disk is a failure too
        done = store.record.all("SELECT COUNT(*) FROM rounds")[0][0]
        store.record.event(done, None, "failed", (str(error) or type(error).__name__).splitlines()[0])


def execute_rounds(
    setup: Setup,
    store: RunStore,
    callback: RunCallback,
    server_state: ServerState | None,
    started: list[Worker] | Engine | None,
) -> Result:
    """`execute` after the trackers have started."""
    engine = engine_for(setup, store, started, callback.on_message)
    try:
        if setup.faults:
            engine = Faulty(engine, setup.faults, setup.plan)
        callback.on_start(setup, engine)
        loop = setup.loop(engine, store, callback)
        with one_thread():
            server_state = server_state or loop.begin()
            engine.ready()
            server_state = loop.run(server_state)
        callback.on_end(loop.clock.evaluation_share())
    except KeyboardInterrupt:
        if store.folder is None:
            raise
        command = resume_command(store.folder, option_values(setup))
        raise KeyboardInterrupt(f"stopped, nothing is lost; `{command}` resumes the run") from None
    finally:
        engine.close()
    if store.folder is not None:
        export(setup, store, server_state)
    return Result(setup, store, server_state)


def export(setup: Setup, store: RunStore, server_state: ServerState) -> None:
    """Write model.safetensors: the state dict of the evaluated model, without private entries and without frozen
    parameters, which the header names by their hash."""
    assert store.folder is not None
    model = setup.runtime.model
    state = model.state_dict(server_state.evaluated, server_state.integers)
    left_out = setup.method.private_names(setup.plan.layout) | model.frozen_names()
    state = {name: value for name, value in state.items() if name not in left_out}
    data = weights_file(state, model_metadata(setup))
    write_file(store.folder / "model.safetensors", data)
    digest = hashlib.sha256(data).hexdigest()
    with store.record.transaction(durable=True):
        store.record.db.execute("DELETE FROM files WHERE path = 'model.safetensors'")
        store.record.db.execute("INSERT INTO files VALUES (?,?,?)", (server_state.round, "model.safetensors", digest))
        checksums.seal(store.record.db, "files")


def model_metadata(setup: Setup) -> dict[str, str]:
    """The header of a file of weights."""
    base = setup.runtime.model.frozen.digest
    return {"model": setup.model_name, "format": "pt", **({"base": base} if base else {})}
