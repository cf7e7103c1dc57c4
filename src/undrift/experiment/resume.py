"""Runs on disk: `ud.load` opens one, `ud.resume` resumes it."""

from __future__ import annotations

import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import undrift
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment import kept_code
from undrift.experiment.agreement import check_resumed
from undrift.experiment.callback import RunCallback
from undrift.experiment.folders import run_folder
from undrift.experiment.foreign_code import foreign_code
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Result
from undrift.experiment.run_toml import part_text, read_toml, record_rounds
from undrift.experiment.runner import execute
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation
from undrift.store.run_store import RunStore


def load(
    run: str | Path, *, method: Any = None, federation: Federation | None = None, model: Any = None, **overrides: Any
) -> Any:
    """Open a run from its folder (or its name inside `runs`), finished or not, without changing it.

    Objects that run.toml cannot name must be given again: `federation`, `model`, `method`, or an option such as `loss`.
    For the folder of a deployment's site, the result has `.model` and `.personal()`.

        result = ud.load("runs/digits-scaffold-1")
        result.summary, result.model, result.personal(3), result.rows("SELECT …")
    """
    if (Path(run) / "site.toml").exists():
        from undrift.deploy.site_model import SiteModel

        return SiteModel(Path(run))
    folder = run_folder(run)
    setup = rebuild_setup(folder, method, federation, model, None, overrides)
    store = open_store(folder, setup, lock=False)
    server_state, _ = store.newest()
    return Result(setup, store, server_state)


def resume(
    run: str | Path,
    *,
    rounds: int | None = None,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    callback: RunCallback | None = None,
    checkpoint_every: int | None = None,
    **overrides: Any,
) -> Result:
    """Resume a run from its last checkpoint. The result is the one of a run that was never stopped, bit for bit.

    `rounds` sets a new total, also for a finished run. The method's schedules stay as they were at the start of the run.
    Objects that run.toml cannot name must be given again: `federation`, `model`, `method`, or an option such as `loss`.
    `checkpoint_every=N` writes a checkpoint every N rounds.

        ud.resume("runs/digits-scaffold-1")
        ud.resume("runs/digits-scaffold-1", rounds=100)
    """
    folder = run_folder(run)
    setup = rebuild_setup(folder, method, federation, model, rounds, overrides)
    store = open_store(folder, setup, every=checkpoint_every)
    try:
        server_state, fallbacks = store.restore()
        for sentence in fallbacks:
            store.record.event(server_state.round, None, "fallback", sentence)
        if server_state.round < setup.plan.rounds:
            if rounds is not None:
                record_rounds(folder / "run.toml", rounds)
            store.record.event(
                server_state.round, None, "resumed", f"from the checkpoint before round {server_state.round}"
            )
        return execute(setup, store, callback or RunCallback(), server_state)
    finally:
        store.close()


def rebuild_setup(
    folder: Path,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    rounds: int | None = None,
    overrides: dict[str, Any] | None = None,
) -> Setup:
    """The setup of a run, rebuilt from run.toml and checked: same version, method, data and network as recorded."""
    table = read_toml(folder / "run.toml")
    written = tomllib.loads((folder / "run.toml").read_text())
    about = written.get("about", {})
    if "deploy" in written and federation is None:  # the data are at the sites; the server knows only their sizes
        from undrift.deploy.server import known_federation

        federation = known_federation(folder)
    kept_code.make_importable(foreign_code(table, {"method": method, "model": model}), folder / kept_code.FOLDER)
    kept_code.refuse_changed(folder, about)
    if method is None:
        check_resumed(table, folder / "run.toml")
    parts = table.pop("parts", None)
    given = {
        **(overrides or {}),
        "model": model,
        **dict.fromkeys(("data", "partition", "noise", "domains"), federation),
    }
    for name, value in table.items():
        if is_object(value) and given.get(name) is None:
            raise BadRequest(
                f"the run in {folder} used objects that run.toml cannot name; use "
                f"ud.resume(RUN, {'federation' if name == 'data' else name}=…) in Python"
            )
    if method is None and any(is_object(part.partition(".")[2]) for part in parts or ()):
        raise BadRequest(
            f"the run in {folder} has a part that run.toml cannot name; use ud.resume(RUN, method=…) in Python"
        )
    if about.get("undrift", "").split(".")[:2] != undrift.__version__.split(".")[:2]:
        raise BadRequest(
            f"the run in {folder} was made by undrift {about.get('undrift')}, this is {undrift.__version__}; install that version"
        )
    table = {k: v for k, v in table.items() if not is_object(v)}
    table.update(overrides or {})
    if rounds is not None:
        table["rounds"] = rounds
    if method is not None:
        table["method"] = method
    if model is not None:
        table["model"] = model
    setup = prepare(from_keywords({**table, "out": str(folder)}), federation, None if method is not None else parts)
    if method is not None and parts is not None and [part_text(part) for part in setup.method.parts] != parts:
        raise BadRequest(f"the method is not the one of {folder}; give the same one: {', '.join(parts)}")
    if setup.federation.fingerprint != about.get("federation"):
        raise BadRequest(f"the data are not those of the run in {folder}; give the same ones")
    if setup.plan.layout.signature != about.get("layout"):
        raise BadRequest(f"the model is not the one of the run in {folder}; give the same one")
    return setup


def is_object(value: Any) -> bool:
    """Whether a value of run.toml stands for a Python object that text cannot name."""
    return isinstance(value, str) and value.startswith("object:")


def open_store(folder: Path, setup: Setup, lock: bool = True, every: int | None = None) -> RunStore:
    """The store of an existing run."""
    try:
        store = RunStore(folder, int(setup.options.memory * 10**9), every, lock=lock)
        store.record.all("SELECT COUNT(*) FROM files")
    except sqlite3.DatabaseError as error:
        raise RunFailed(f"the record of {folder} is damaged ({error}): nothing whole is left to resume from") from None
    return store
