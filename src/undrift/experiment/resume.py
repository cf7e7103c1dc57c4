"""Runs on disk: `ud.load` opens one, `ud.resume` resumes it."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import undrift
from undrift.core.errors import BadRequest, NoData, RunFailed
from undrift.experiment import foreign_code, kept_code
from undrift.experiment.agreement import check_resumed, disagreement, is_unedited, refuse_other_base
from undrift.experiment.callback import RunCallback
from undrift.experiment.folders import run_folder
from undrift.experiment.foreign_code import Trust
from undrift.experiment.options import Options, from_keywords
from undrift.experiment.result import Result, Unbuilt
from undrift.experiment.run_file import RunFile, refuse_changed, run_file
from undrift.experiment.run_toml import part_text, read_run, record_rounds
from undrift.experiment.runner import execute
from undrift.experiment.setup import Setup, build_federation, prepare
from undrift.federation.federation import Federation
from undrift.round.engine import Engine
from undrift.store.record import UNREADABLE
from undrift.store.run_store import RunStore


class DamagedRun(UserWarning):
    """A run folder is not as the run wrote it. What `ud.load` returns is said in the warning and in `result.damage`."""


def load(
    run: str | Path,
    *,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    trust: bool = False,
    **overrides: Any,
) -> Any:
    """Open a run from its folder (or its name inside `runs`), finished or not, without changing it.

    Objects that run.toml cannot name must be given again: `federation`, `model`, `method`, or an option such as `loss`.
    Code that run.toml names (`package:function`) is imported only with `trust=True`. Without it, `.model` and
    `.personal()` ask for `model=`, and the numbers are there all the same.
    The same holds without the data: `.summary`, `.table()`, `.plot()`, `.curve()` and `.rows()` need the record only.
    A damaged run gives a warning (`DamagedRun`) that says what is damaged and which checkpoint is used.
    For the folder of a deployment's site, the result has `.model` and `.personal()`.

        result = ud.load("runs/digits-scaffold-1")
        result.summary, result.model, result.personal(3), result.rows("SELECT …")
    """
    if isinstance(run, (str, os.PathLike)) and (Path(run) / "site.toml").exists():
        from undrift.deploy.site_model import SiteModel

        return SiteModel(Path(run), model, trust)
    result = open_run(run, method, federation, model, trust, overrides)
    for sentence in result.damage:
        warnings.warn(f"{result.folder}: {sentence}", DamagedRun, stacklevel=2)
    return result


def open_run(
    run: str | Path,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    trust: Trust = False,
    overrides: dict[str, Any] | None = None,
) -> Result:
    """`load` without warnings: `result.damage` has the sentences."""
    folder = run_folder(run)
    written = run_file(folder)
    given = {**(overrides or {}), "method": method, "model": model}
    names = foreign_code.untrusted(foreign_code.foreign_code(written.options, given), trust)
    built: Setup | Unbuilt
    if names:
        fix = "give it with model=… (or loss=…, metrics=…), or trust the run: ud.load(RUN, trust=True)"
        built = Unbuilt(
            str(written.options["method"]), written.options["thresholds"], foreign_code.refusal(folder, names, fix)
        )
    else:
        try:
            built = rebuild_setup(folder, method, federation, model, None, overrides)
        except NoData as missing:
            built = Unbuilt(str(written.options["method"]), written.options["thresholds"], missing)
    store = open_store(folder, written, lock=False)
    server_state, damage = store.newest(states=False)
    damage = [*written.damage, *damage, *store.damage()]
    with sentence_if_damaged(folder, damage):
        return Result(built, store, server_state, damage)


def resume(
    run: str | Path,
    *,
    rounds: int | None = None,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    callback: RunCallback | None = None,
    checkpoint_every: int | None = None,
    trust: Trust = False,
    started: Engine | None = None,
    **overrides: Any,
) -> Result:
    """Resume a run from its last checkpoint. The result is the one of a run that was never stopped, bit for bit.

    `rounds` sets a new total, also for a finished run. The method's schedules stay as they were at the start of the run.
    Objects that run.toml cannot name must be given again: `federation`, `model`, `method`, or an option such as `loss`.
    Code that run.toml names (`package:function`) is imported only with `trust=True`.
    `checkpoint_every=N` writes a checkpoint every N rounds. `result.damage` says what was found damaged.
    `started` is an engine that already runs.

        ud.resume("runs/digits-scaffold-1")
        ud.resume("runs/digits-scaffold-1", rounds=100)
    """
    folder = run_folder(run)
    written = run_file(folder)
    given = {**overrides, "method": method, "model": model}
    if names := foreign_code.untrusted(foreign_code.foreign_code(written.options, given), trust):
        raise foreign_code.refusal(folder, names, "look at it, then resume with --trust (trust=True in Python)")
    refuse_edited(folder, written, method)
    setup = rebuild_setup(folder, method, federation, model, rounds, overrides)
    store = open_store(folder, written, every=checkpoint_every)
    try:
        server_state, fallbacks = store.restore()
        damage = store.damage()
        for sentence in fallbacks:
            store.record.event(server_state.round, None, "fallback", sentence)
        for sentence in damage:
            store.record.event(server_state.round, None, "damaged", sentence)
        if server_state.round < setup.plan.rounds:
            if rounds is not None:
                record_rounds(folder / "run.toml", rounds, store.record)
            store.record.event(
                server_state.round, None, "resumed", f"from the checkpoint before round {server_state.round}"
            )
        with sentence_if_damaged(folder, damage):
            result = execute(setup, store, callback or RunCallback(), server_state, started)
        result.damage = [*fallbacks, *damage]
        return result
    except UNREADABLE as error:
        raise RunFailed(
            f"the record of {folder} cannot be used ({error}); free some disk space, or restore the folder from a backup"
        ) from None
    finally:
        store.close()


def refuse_edited(folder: Path, written: RunFile, method: Any = None) -> None:
    """Refuse to resume a run whose run.toml was edited, with a sentence of its own for the method."""
    if written.changed is None:
        return
    path = folder / "run.toml"
    try:
        now = read_run(path)
    except BadRequest:  # the file cannot be read at all
        refuse_changed(folder, written.changed)
    if method is None and not is_unedited(now.options, now.about):
        raise disagreement(now.options, path)
    refuse_changed(folder, written.changed)


def rebuild_setup(
    folder: Path,
    method: Any = None,
    federation: Federation | None = None,
    model: Any = None,
    rounds: int | None = None,
    overrides: dict[str, Any] | None = None,
) -> Setup:
    """The setup of a run, rebuilt from run.toml and checked: same version, method, data and network as recorded. It
    imports the code that run.toml names."""
    written = run_file(folder)
    table, about = dict(written.options), written.about
    federation = federation or remote_federation(folder, written)
    if names := foreign_code.foreign_code(table, {**(overrides or {}), "method": method, "model": model}):
        kept_code.make_importable(names, folder / kept_code.FOLDER)
        kept_code.refuse_changed(folder, about)  # it may import packages, so only where the code is trusted
    if method is None:
        check_resumed(table, about, folder / "run.toml")
    parts = table.pop("parts", None)
    given = {
        **(overrides or {}),
        "model": model,
        **dict.fromkeys(("data", "partition", "noise", "domains"), federation),
    }
    refuse_objects(folder, table, given)
    if method is None and any(is_object(part.partition(".")[2]) for part in parts or ()):
        raise BadRequest(
            f"the run in {folder} has a part that run.toml cannot name; use ud.resume(RUN, method=…) in Python"
        )
    if str(about.get("undrift", "")).split(".")[:2] != undrift.__version__.split(".")[:2]:
        raise BadRequest(
            f"the run in {folder} was made by undrift {about.get('undrift')}, this is {undrift.__version__}; install that version"
        )
    table = {k: v for k, v in table.items() if not is_object(v)}
    table.update(overrides or {})
    if table.get("engine") != "ray":
        table.pop("ray_address", None)  # of the cluster that the run began on
    if rounds is not None:
        table["rounds"] = rounds
    if method is not None:
        table["method"] = method
    if model is not None:
        table["model"] = model
    options = from_keywords({**table, "out": str(folder)})
    # A run goes on as it began, also where this version or this machine would decide otherwise.
    trained = about.get("clients", "clients one by one (by a version without lock-step)")
    setup = prepare(options, federation or found_federation(options), None if method is not None else parts, trained)
    if method is not None and parts is not None and [part_text(part) for part in setup.method.parts] != parts:
        raise BadRequest(f"the method is not the one of {folder}; give the same one: {', '.join(parts)}")
    refuse_other_data(folder, setup.federation, about)
    if setup.plan.layout.signature != about.get("layout"):
        raise BadRequest(f"the model is not the one of the run in {folder}; give the same one")
    refuse_other_base(setup, about.get("base"), f"the run in {folder} was made with")
    return setup


def rebuild_federation(folder: Path) -> Federation:
    """The federation of a run, rebuilt from run.toml and checked. No code that run.toml names is imported."""
    written = run_file(folder)
    federation = remote_federation(folder, written)
    if federation is None:
        shape = {name: written.options.get(name) for name in ("data", "partition", "noise", "domains")}
        refuse_objects(folder, shape, {})
        if names := foreign_code.foreign_code(shape):
            raise foreign_code.refusal(folder, names, "it is not imported for a figure")
        options = {k: v for k, v in written.options.items() if not is_object(v) and k not in ("parts", "method")}
        federation = build_federation(from_keywords(options))
    refuse_other_data(folder, federation, written.about)
    return federation


def remote_federation(folder: Path, written: RunFile) -> Federation | None:
    """The federation of a deployment's run: its data are at the sites, and the server knows only their sizes."""
    if written.deploy is None:
        return None
    from undrift.deploy.server import known_federation

    return known_federation(folder)


def refuse_other_data(folder: Path, federation: Federation, about: dict[str, Any]) -> None:
    if federation.fingerprint != about.get("federation"):
        raise BadRequest(f"the data are not those of the run in {folder}; give the same ones")


def refuse_objects(folder: Path, table: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse a run with objects that run.toml cannot name, unless they are given again."""
    for name, value in table.items():
        if is_object(value) and given.get(name) is None:
            raise (NoData if name == "data" else BadRequest)(
                f"the run in {folder} used objects that run.toml cannot name; use "
                f"ud.resume(RUN, {'federation' if name == 'data' else name}=…) in Python"
            )


def found_federation(options: Options) -> Federation:
    try:
        return build_federation(options)
    except BadRequest as error:
        raise NoData(str(error)) from error


def is_object(value: Any) -> bool:
    """Whether a value of run.toml stands for a Python object that text cannot name."""
    return isinstance(value, str) and value.startswith("object:")


def open_store(folder: Path, written: RunFile, lock: bool = True, every: int | None = None) -> RunStore:
    """The store of an existing run."""
    damaged = f"the record of {folder} is damaged (%s): nothing whole is left to resume from"
    try:
        store = RunStore(folder, int(written.options.get("memory", 1.0) * 10**9), every, lock=lock)
        store.record.all("SELECT COUNT(*) FROM files")
    except (*UNREADABLE, RunFailed) as error:
        raise RunFailed(damaged % error) from None
    return store


@contextlib.contextmanager
def sentence_if_damaged(folder: Path, damage: Sequence[str]) -> Iterator[None]:
    """Damaged numbers can break whatever reads them: an error in a run known to be damaged ends in a sentence."""
    try:
        yield
    except (BadRequest, RunFailed, OSError):
        raise
    except Exception as error:
        if not damage:
            raise
        raise RunFailed(f"the run in {folder} cannot be read: {'; '.join(damage)}") from error
