"""`ud.run`, `ud.load`, and the folder of a run: from keywords to a finished run and back."""

from __future__ import annotations

import hashlib
import shutil
from typing import Any

import safetensors.torch
import torch

from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest
from undrift.engine.faulty import Faulty
from undrift.engine.spawn import Worker
from undrift.experiment.callback import RunCallback
from undrift.experiment.engines import engine_for
from undrift.experiment.folders import claim_folder
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Result
from undrift.experiment.run_toml import option_values, provenance, write_toml
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation
from undrift.round.engine import Engine
from undrift.store.run_store import RunStore, written
from undrift.store.server_state import ServerState


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
    """Run a method on a federation. Keywords are the options of `undrift run`; `out=False` keeps nothing on disk.

    >>> result = run("fedavg", rounds=2, clients=4, out=False)
    >>> sorted(result.summary)[:3]
    ['accuracy', 'failures', 'method']
    """
    options = from_keywords({"method": method, **keywords})
    setup = prepare(options, federation, parts)
    folder = None if options.out is False else claim_folder(options, setup)
    store = RunStore(folder, int(options.memory * 10**9), checkpoint_every)
    try:
        if folder is not None:
            write_toml(folder / "run.toml", option_values(setup), provenance(setup))
        result = execute(setup, store, callback or RunCallback(), started=started)
    except BaseException as error:
        refused = isinstance(error, BadRequest) and not store.record.all("SELECT round FROM rounds LIMIT 1")
        store.close()
        if folder is not None and refused:
            shutil.rmtree(folder)  # an engine that cannot start leaves no empty run behind
        raise
    if folder is not None:
        store.close()  # a run in memory stays open: its result reads from it
    return result


def execute(
    setup: Setup,
    store: RunStore,
    callback: RunCallback,
    server_state: ServerState | None = None,
    started: list[Worker] | Engine | None = None,
) -> Result:
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
        raise KeyboardInterrupt(f"stopped; nothing is lost: `undrift resume {store.folder}` goes on") from None
    finally:
        engine.close()
    if store.folder is not None:
        export(setup, store, server_state)
    return Result(setup, store, server_state)


def export(setup: Setup, store: RunStore, server_state: ServerState) -> None:
    """`model.safetensors`: an ordinary state dict of the judged model (its shared entries, where some are private)."""
    assert store.folder is not None
    state = setup.runtime.model.state_dict(server_state.evaluated, server_state.integers)
    private = setup.method.private_names(setup.plan.layout)
    state = {name: value for name, value in state.items() if name not in private}
    data = safetensors.torch.save(unshared(state), metadata={"model": setup.model_name, "format": "pt"})
    written(store.folder / "model.safetensors", data)
    digest = hashlib.sha256(data).hexdigest()
    with store.record.transaction():
        store.record.db.execute("DELETE FROM files WHERE path = 'model.safetensors'")
        store.record.db.execute("INSERT INTO files VALUES (?,?,?)", (server_state.round, "model.safetensors", digest))


def unshared(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tied names get a copy each: safetensors refuses tensors that share memory."""
    return {name: value.clone() for name, value in state.items()}
