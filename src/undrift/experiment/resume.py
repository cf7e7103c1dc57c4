"""Runs that lie on disk: `ud.load` looks at one, `ud.resume` goes on with it."""

from __future__ import annotations

import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import undrift
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.callback import RunCallback
from undrift.experiment.folders import run_folder
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Result
from undrift.experiment.run_toml import part_text, read_toml
from undrift.experiment.runner import execute
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation
from undrift.store.run_store import RunStore


def load(
    run: str | Path, *, method: Any = None, federation: Federation | None = None, model: Any = None, **overrides: Any
) -> Any:
    """A run as it was left: `.summary`, `.rows`, `.model`, `.personal(client)`. What text cannot name must be given.
    Of a site's folder of a deployment: `.model` and `.personal()`."""
    if (Path(run) / "site.toml").exists():
        from undrift.deploy.site_model import SiteModel

        return SiteModel(Path(run))
    folder = run_folder(run)
    setup = rebuild_setup(folder, method, federation, model, None, overrides)
    store = open_store(folder, setup, lock=False)
    server_state, _ = store.newest()
    return Result(setup, store, server_state)


def resume(
    run: str | Path, *, rounds: int | None = None, method: Any = None, federation: Federation | None = None,
    model: Any = None, callback: RunCallback | None = None, checkpoint_every: int | None = None, **overrides: Any,
) -> Result:  # fmt: skip
    """Go on where a run stopped; `rounds` gives a finished one more (its schedules stay as they were resolved)."""
    folder = run_folder(run)
    setup = rebuild_setup(folder, method, federation, model, rounds, overrides)
    store = open_store(folder, setup, every=checkpoint_every)
    try:
        server_state, said = store.restore()
        for sentence in said:
            store.record.event(server_state.round, None, "fallback", sentence)
        if server_state.round < setup.plan.rounds:
            store.record.event(
                server_state.round, None, "resumed", f"from the checkpoint before round {server_state.round}"
            )
        return execute(setup, store, callback or RunCallback(), server_state)
    finally:
        store.close()


def rebuild_setup(
    folder: Path, method: Any = None, federation: Federation | None = None, model: Any = None,
    rounds: int | None = None, overrides: dict[str, Any] | None = None,
) -> Setup:  # fmt: skip
    """The run's setup made again from run.toml, checked against what was recorded of it."""
    table = read_toml(folder / "run.toml")
    written = tomllib.loads((folder / "run.toml").read_text())
    about = written.get("about", {})
    if "deploy" in written and federation is None:  # the data are elsewhere; how much of them is known
        from undrift.deploy.server import known_federation

        federation = known_federation(folder)
    parts = table.pop("parts", None)
    given = {
        **(overrides or {}),
        "model": model,
        **dict.fromkeys(("data", "partition", "noise", "domains"), federation),
    }
    for name, value in table.items():
        if is_object(value) and given.get(name) is None:
            raise BadRequest(f"the run in {folder} was made with objects that text cannot name; use "
                             f"ud.resume(RUN, {'federation' if name == 'data' else name}=…) in Python")  # fmt: skip
    if method is None and any(is_object(words.partition(".")[2]) for words in parts or ()):
        raise BadRequest(
            f"the run in {folder} has a part that text cannot name; use ud.resume(RUN, method=…) in Python"
        )
    if about.get("undrift", "").split(".")[:2] != undrift.__version__.split(".")[:2]:
        raise BadRequest(
            f"the run in {folder} was made by undrift {about.get('undrift')}; this is {undrift.__version__}"
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
        raise BadRequest(f"the method is not the one of {folder}: there it was {', '.join(parts)}")
    if setup.federation.fingerprint != about.get("federation"):
        raise BadRequest(f"the data are not those the run in {folder} was made with; resume it with the same ones")
    if setup.plan.layout.signature != about.get("layout"):
        raise BadRequest(f"the model is not the one the run in {folder} was made with")
    return setup


def is_object(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("object:")


def open_store(folder: Path, setup: Setup, lock: bool = True, every: int | None = None) -> RunStore:
    try:
        store = RunStore(folder, int(setup.options.memory * 10**9), every, lock=lock)
        store.record.all("SELECT COUNT(*) FROM files")
    except sqlite3.DatabaseError as error:
        raise RunFailed(f"the record of {folder} is damaged ({error}): nothing whole is left to resume from") from None
    return store
