"""The server's side: starts a run in its folder, or resumes it if it was interrupted."""

from __future__ import annotations

import functools
import json
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.files import read_json
from undrift.core.schema import Count, Name, check, setting
from undrift.deploy import spec as specs
from undrift.deploy.base import base_bytes
from undrift.deploy.evaluator import SiteEvaluator
from undrift.deploy.handshake import Handshake, TrafficLog, Transport, handshake_request
from undrift.deploy.monitor import Log, Monitor, Progress, prometheus_file
from undrift.deploy.sites import SitesEngine, Unsound
from undrift.deploy.spec import MAX_SAMPLES, Spec, server_federation
from undrift.experiment import kept_code
from undrift.experiment.agreement import refuse_other_base
from undrift.experiment.foreign_code import foreign_code, refusal, untrusted
from undrift.experiment.result import Result
from undrift.experiment.resume import open_store, rebuild_setup, refuse_edited
from undrift.experiment.run_file import run_file
from undrift.experiment.run_toml import option_values, provenance, write_toml
from undrift.experiment.runner import export
from undrift.experiment.setup import Setup
from undrift.federation import images
from undrift.federation.federation import Federation, Samples
from undrift.federation.from_clients import client_tensors
from undrift.round.loop import Loop
from undrift.store import checksums
from undrift.store.durable import make_folder, write_file
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState


def log_to_stderr(text: str) -> None:
    print(f"undrift: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class RunInfo:
    """The result of the first handshake, kept in `roll.json`. Only `sessions` changes during the run."""

    run: Name = setting(..., "names the run at the sites")
    sessions: Count = setting(..., "how often the server was started on it")
    sizes: dict[str, Annotated[int, Ge(0), Le(MAX_SAMPLES)]] = setting(
        ..., "training samples by site, 0 for a site that was absent"
    )

    def save(self, folder: Path) -> RunInfo:
        write_file(folder / "roll.json", json.dumps(checksums.with_crc(vars(self)), indent=1).encode())
        return self

    @staticmethod
    def load(folder: Path) -> RunInfo:
        path = folder / "roll.json"
        try:
            written = read_json(path)
            checked = check(RunInfo, {key: written[key] for key in written if key != "crc32"}, str(path))
            checksums.without_crc(written)
            return RunInfo(**checked)
        except BadRequest as error:
            raise BadRequest(f"{error}; restore it, or choose another out for a new run") from None
        except (ValueError, TypeError) as error:
            raise BadRequest(
                f"{path} cannot be used: {error}; restore it, or choose another out for a new run"
            ) from None


def serve_run(spec: Spec, transport: Transport, config: Mapping[str, Any], log: Log = log_to_stderr) -> Result:
    """Start the run in the folder `out`, or resume the one that is there."""
    spec = specs.with_overrides(spec, config)
    if not config.get("out"):
        raise BadRequest("a run needs a folder at the server: flwr run … -c 'out=\"/srv/undrift/first\"'")
    folder = Path(str(config["out"])).expanduser().resolve()
    test_set = load_test_set(spec, config)
    prometheus = prometheus_file(str(config.get("prometheus") or ""))
    before = os.umask(0o077)  # models and record reveal something about the sites' data
    try:
        if folder.is_dir():
            make_private(folder)
        with Monitor(folder, spec.all_sites, spec.options.rounds, prometheus).session() as monitor:
            if (folder / "roll.json").exists():
                return resume_run(spec, transport, folder, test_set, log, monitor)
            return start_run(spec, transport, folder, test_set, log, monitor)
    finally:
        os.umask(before)


def make_private(folder: Path) -> None:
    """The run's folder and databases for the server's account alone, also if they were made before."""
    if any(path.name not in RUN_FILES for path in folder.iterdir() if not (folder / "roll.json").exists()):
        return  # not a run: it is refused below
    folder.chmod(0o700)
    for path in folder.glob("run.sqlite*"):
        path.chmod(0o600)


def start_run(
    spec: Spec, transport: Transport, folder: Path, test_set: Samples | None, log: Log, monitor: Monitor
) -> Result:
    if folder.exists() and any(path.name not in RUN_FILES for path in folder.iterdir()):
        raise BadRequest(f"{folder} holds files that are not a deployment's run; choose another out")
    provisional = spec.setup(server_federation(spec, [1] * len(spec.sites), test_set))
    if spec.base is not None:
        refuse_other_base(provisional, spec.base, f"the app in {spec.where} was made with")
    for sentence in provisional.notices:
        log(f"note: {sentence}")
    make_folder(folder, mode=0o700)
    store = RunStore(folder, int(spec.options.memory * 10**9))
    try:
        run = uuid.uuid4().hex[:12]
        monitor.open(1, 0)
        traffic = TrafficLog(folder / "border.jsonl")
        handshake = start_handshake(spec, provisional, transport, run, 1, traffic, monitor)
        log(f"handshake: waiting up to {spec.wait:g} s for {', '.join(spec.all_sites)}")
        handshake.wait_for_sites(spec.wait)
        if spec.unnamed_nodes:
            handshake.pending_events.append(("waived", WAIVED))
        record_handshake(handshake, store, 0, log)
        connected = handshake.connected() & set(spec.sites)
        needed = spec.needed(len(spec.sites))
        if len(connected) < needed:
            raise RunFailed(
                f"{len(connected)} of {len(spec.sites)} sites completed the handshake and {needed} are needed; "
                "start the run again when they are connected"
            )
        sizes = {site: handshake.sites[site].n if site in connected else 0 for site in spec.sites}
        total, cap = sum(sizes.values()), provisional.plan.weight_cap
        for site, n in sizes.items():
            if n > cap * total and len(connected) > 1:
                handshake.pending_events.append(
                    ("weights", f"{site} has {n} of {total} samples; its weight is at most {cap:g}")
                )
        info = RunInfo(run, 1, sizes)
        setup = spec.setup(server_federation(spec, list(sizes.values()), test_set))
        options = option_values(setup)
        kept_code.keep(folder, options)
        tables = {"about": provenance(setup), "deploy": spec.deploy_table()}
        write_toml(folder / "run.toml", options, tables, store.record)
        info.save(folder)
        return run_rounds(spec, setup, handshake, store, info, None, log)
    finally:
        store.close()


ROLLBACKS = 2  # of a run that was started once
WAIVED = "nodes whose keys have no registered name may speak for any site"
RUN_FILES = (
    "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "run.sqlite-crc32", "lock", "checkpoints", "states", "run.toml", "border.jsonl",
    "run.toml.part", "roll.json.part", "metrics.jsonl", kept_code.FOLDER,
)  # fmt: skip


def resume_run(
    spec: Spec, transport: Transport, folder: Path, test_set: Samples | None, log: Log, monitor: Monitor
) -> Result:
    info = RunInfo.load(folder)
    before = specs.read(folder)
    if (before.sites, before.evaluate_only, before.labels) != (spec.sites, spec.evaluate_only, spec.labels):
        raise BadRequest(f"{folder} holds a run with other sites or labels; choose another out for a new run")
    federation = server_federation(spec, list(info.sizes.values()), test_set)
    written = run_file(folder)
    refuse_edited(folder, written)
    asked = foreign_code({**spec.table, "parts": spec.parts})
    if foreign := untrusted(foreign_code(written.options), asked):  # the app's own code runs, nobody else's
        raise refusal(folder, foreign, "choose another out for a new run")
    setup = rebuild_setup(folder, None, federation, None, spec.options.rounds)
    if specs.resolved_parts(setup) != specs.resolved_parts(spec.setup(setup.federation)):
        raise BadRequest(
            f"{folder} holds a run of {setup.method.name}, which is not this app's method; choose another out"
        )
    store = open_store(folder, written)
    try:
        info = replace(info, sessions=info.sessions + 1).save(folder)
        server_state, damaged = store.restore()
        for sentence in damaged:
            store.record.event(server_state.round, None, "fallback", sentence)
        for sentence in store.damage():
            store.record.event(server_state.round, None, "damaged", sentence)
            log(sentence)
        store.record.event(
            server_state.round, None, "resumed", f"from the checkpoint before round {server_state.round}"
        )
        log(f"resuming at round {server_state.round} ({server_state.round} of {setup.plan.rounds} done) in {folder}")
        monitor.open(info.sessions, server_state.round)
        traffic = TrafficLog(folder / "border.jsonl")
        handshake = start_handshake(spec, setup, transport, info.run, info.sessions, traffic, monitor)
        handshake.wait_for_sites(spec.wait)
        record_handshake(handshake, store, server_state.round, log)
        return run_rounds(spec, setup, handshake, store, info, server_state, log)
    finally:
        store.close()


def start_handshake(
    spec: Spec, setup: Setup, transport: Transport, run: str, session: int, traffic: TrafficLog, monitor: Monitor
) -> Handshake:
    base = functools.partial(base_bytes, setup) if setup.plan.layout.frozen else None
    return Handshake(spec, transport, handshake_request(spec, setup, run, session), traffic, monitor, base)


def record_handshake(handshake: Handshake, store: RunStore, round: int, log: Log) -> None:
    """Record and log which sites joined, were refused or did not reply."""
    for site in sorted(set(handshake.spec.all_sites) - handshake.connected()):
        handshake.pending_events.append(("absent", f"{site} did not complete the handshake"))
    for kind, sentence in handshake.events():
        store.record.event(round, None, kind, sentence)
        handshake.monitor.event(round, kind, sentence)
        log(sentence)


def run_rounds(
    spec: Spec,
    setup: Setup,
    handshake: Handshake,
    store: RunStore,
    info: RunInfo,
    server_state: ServerState | None,
    log: Log,
) -> Result:
    """Run from `server_state` (None: from Θ⁰) to the last round."""
    assert store.folder is not None
    run_fields = {"run": info.run, "session": info.sessions}
    engine = SitesEngine(spec, handshake, setup.runtime, store.states, run_fields)
    evaluator = SiteEvaluator(setup.evaluator(engine), engine)
    last_event = store.record.all("SELECT COALESCE(MAX(rowid), 0) FROM events")[0][0]
    progress = Progress(log, store, handshake.monitor, setup.plan.task.shown, last_event)
    loop = setup.loop(engine, store, progress, evaluator)
    model = f"{setup.model_name} ({setup.plan.layout.n:,} numbers)"
    log(f"{setup.method.name}: {setup.plan.rounds} rounds, {model}; {engine.plan_line}")
    with one_thread():
        if server_state is None:
            server_state = loop.begin()
        else:
            evaluate_last_round(loop, evaluator, store, server_state)
        server_state = run_with_rollbacks(loop, engine, evaluator, progress, server_state)
    export(setup, store, server_state)
    log(f"finished: {server_state.round} of {setup.plan.rounds} rounds done; saved in {store.folder}")
    return Result(setup, store, server_state)


def run_with_rollbacks(
    loop: Loop, engine: SitesEngine, evaluator: SiteEvaluator, callback: Progress, server_state: ServerState
) -> ServerState:
    """The rounds to the last one. If a model makes training non-finite at the sites, the run goes back to the checkpoint
    before it: what made the model so would otherwise be in every checkpoint to come."""
    store = loop.store
    for rollbacks_left in reversed(range(ROLLBACKS + 1)):
        try:
            return loop.run(server_state)
        except RunFailed as error:
            finished = store.record.all("SELECT COUNT(*) FROM rounds")[0][0]
            for kind, sentence in engine.events():  # the unfinished round's events belong in the record
                store.record.event(finished, None, kind, sentence)
            callback.events()
            if not isinstance(error, Unsound):
                raise
            if not error.round or not rollbacks_left:
                raise RunFailed(
                    f"{error}, {'before any model was combined' if not error.round else f'and again after {ROLLBACKS} rollbacks'}; "
                    "look at what the sites sent (`undrift deploy status`), or lower --lr"
                ) from None
            server_state, _ = store.restore(before=error.round)
            callback.last_event = store.record.all("SELECT COALESCE(MAX(rowid), 0) FROM events")[0][0]  # rows are gone
            engine.forget()
            sentence = f"{error}; back to the checkpoint before round {server_state.round}"
            store.record.event(server_state.round, None, "rollback", sentence)
            callback.events()
            evaluate_last_round(loop, evaluator, store, server_state)
    raise AssertionError


def evaluate_last_round(loop: Loop, evaluator: SiteEvaluator, store: RunStore, server_state: ServerState) -> None:
    """Request the last round's L1 metrics again if they had not arrived when the server stopped."""
    round = server_state.round - 1
    recorded = store.record.all("SELECT COUNT(*) FROM metrics WHERE round = ? AND stage = 'L1'", (round,))[0][0]
    if round < 0 or recorded or not evaluator.is_due(round):
        return
    cohort = json.loads(store.record.all("SELECT cohort FROM rounds WHERE round = ?", (round,))[0][0])
    rows = evaluator.metrics_of(evaluator.engine.map(evaluator.orders(server_state, cohort, loop.open_round)))
    with store.record.transaction():  # rows arrive at once only after the last round
        store.record.add(metrics=rows)


# ---- the server's own data -----------------------------------------------------------------------------------------


def load_test_set(spec: Spec, config: Mapping[str, Any]) -> Samples | None:
    """The server's own test set: what `test()` in its data.py (`-c 'data="PATH/data.py"'`) returns, as (x, y)."""
    if not config.get("data"):
        return None
    from undrift.deploy.client import import_data_py

    function = getattr(import_data_py(Path(str(config["data"])).expanduser(), "the server"), "test", None)
    if not callable(function):
        raise BadRequest("the server's data.py has no function test(); define one that returns (x, y)")
    x, y, _, _ = client_tensors(function(), "the server's test()", spec.task)
    try:
        spec.task.in_range(y, "the server's test()")
    except BadRequest as error:
        if "labels" not in spec.task.provides:
            raise
        raise BadRequest(
            f"the server's test() returns labels outside 0…{len(spec.labels) - 1}; number its classes like LABELS"
        ) from error
    return images.stored(x), y


def known_federation(folder: Path) -> Federation:
    """The federation of a deployment's run, for loading the run afterwards."""
    spec, sizes = specs.read(folder), RunInfo.load(folder).sizes
    if list(sizes) != list(spec.sites):
        raise BadRequest(
            f"{folder / 'roll.json'} has the sites {', '.join(sizes)}, and run.toml {', '.join(spec.sites)}"
        )
    return server_federation(spec, list(sizes.values()))
