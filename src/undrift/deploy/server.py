"""The server's half: a run with its folder, begun or gone on with, whatever ended it before."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from undrift.core.determinism import one_thread
from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy import spec as specs
from undrift.deploy.evaluator import SiteEvaluator
from undrift.deploy.handshake import Handshake, Transport, calling
from undrift.deploy.sites import Sites
from undrift.deploy.spec import Spec, at_server
from undrift.evaluate.stages import StageEvaluator
from undrift.experiment.callback import RunCallback
from undrift.experiment.result import Result
from undrift.experiment.resume import opened, remade
from undrift.experiment.run_toml import about, resolved
from undrift.experiment.runner import export
from undrift.experiment.setup import Setup
from undrift.federation import images
from undrift.federation.federation import Federation, Samples
from undrift.federation.from_clients import client_tensors
from undrift.round.loop import Loop
from undrift.store.run_store import RunStore, written
from undrift.store.server_state import ServerState

Say = Callable[[str], None]


def say_it(text: str) -> None:
    print(f"undrift: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Facts:
    """What the first roll call found; fixed for the whole run and kept in `roll.json`."""

    run: str  # names the run at the sites
    sessions: int  # how often the server was started on it
    sizes: dict[str, int]  # training samples by site, 0 for one that was not there

    def keep(self, folder: Path) -> Facts:
        written(folder / "roll.json", json.dumps(vars(self), indent=1).encode())
        return self

    @staticmethod
    def of(folder: Path) -> Facts:
        return Facts(**json.loads((folder / "roll.json").read_text()))


def serve_run(spec: Spec, transport: Transport, config: Mapping[str, Any], say: Say = say_it) -> Result:
    """Begin the run in the folder `out`, or go on with it where one is there."""
    spec = specs.changed(spec, config)
    if not config.get("out"):
        raise BadRequest("a run needs a folder at the server: flwr run … -c 'out=\"/srv/undrift/first\"'")
    folder = Path(str(config["out"])).expanduser().resolve()
    test = own_test(spec, config)
    if (folder / "roll.json").exists():
        return go_on(spec, transport, folder, test, say)
    return begin(spec, transport, folder, test, say)


def begin(spec: Spec, transport: Transport, folder: Path, test: Samples | None, say: Say) -> Result:
    if folder.exists() and any(path.name not in OURS for path in folder.iterdir()):
        raise BadRequest(f"{folder} is taken by something that is not a run of a deployment; choose another out")
    provisional = spec.setup(at_server(spec, [1] * len(spec.sites), test))
    for sentence in provisional.notices:
        say(f"note: {sentence}")
    store = RunStore(folder, int(spec.options.memory * 10**9))
    try:
        run = uuid.uuid4().hex[:12]
        handshake = Handshake(spec, transport, calling(spec, provisional, run, 1))
        say(f"roll call: waiting up to {spec.wait:g} s for {', '.join(spec.everybody)}")
        handshake.wait(spec.wait)
        called(handshake, store, 0, say)
        here = handshake.here() & set(spec.sites)
        if len(here) < spec.needed(len(spec.sites)):
            raise RunFailed(
                f"{len(here)} of {len(spec.sites)} sites answered the roll call and {spec.needed(len(spec.sites))} are "
                "needed; start the run again when they are there"
            )
        sizes = {site: handshake.members[site].n if site in here else 0 for site in spec.sites}
        facts = Facts(run, 1, sizes)
        setup = spec.setup(at_server(spec, list(sizes.values()), test))
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in resolved(setup).items() if v is not None}
        (folder / "run.toml").write_text(tomli_w.dumps({**values, "about": about(setup), "deploy": spec.words()}))
        facts.keep(folder)
        return rounds(spec, setup, handshake, store, facts, None, say)
    finally:
        store.close()


OURS = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock", "checkpoints", "states", "run.toml", "border.jsonl")


def go_on(spec: Spec, transport: Transport, folder: Path, test: Samples | None, say: Say) -> Result:
    facts = Facts.of(folder)
    before = specs.read(folder)
    if (before.sites, before.evaluate_only, before.labels) != (spec.sites, spec.evaluate_only, spec.labels):
        raise BadRequest(f"{folder} holds a run with other sites or labels; choose another out for a new one")
    setup = remade(folder, None, at_server(spec, list(facts.sizes.values()), test), None, spec.options.rounds)
    if specs.method_words(setup) != specs.method_words(spec.setup(setup.federation)):
        raise BadRequest(
            f"{folder} holds a run of {setup.method.name}, which is not this app's method; choose another out"
        )
    store = opened(folder, setup)
    try:
        facts = replace(facts, sessions=facts.sessions + 1).keep(folder)
        server_state, said = store.restore()
        for sentence in said:
            store.record.event(server_state.round, None, "fallback", sentence)
        store.record.event(
            server_state.round, None, "resumed", f"from the checkpoint before round {server_state.round}"
        )
        say(f"going on with round {server_state.round} of {setup.plan.rounds} in {folder}")
        handshake = Handshake(spec, transport, calling(spec, setup, facts.run, facts.sessions))
        handshake.wait(spec.wait)
        called(handshake, store, server_state.round, say)
        return rounds(spec, setup, handshake, store, facts, server_state, say)
    finally:
        store.close()


def called(handshake: Handshake, store: RunStore, round: int, say: Say) -> None:
    """The outcome of a roll call, in the record and on the screen: who is there, who was refused, who never answered."""
    for site in sorted(set(handshake.spec.everybody) - handshake.here()):
        handshake.said.append(("absent", f"{site} did not answer the roll call"))
    for kind, sentence in handshake.events():
        store.record.event(round, None, kind, sentence)
        say(sentence)


def rounds(
    spec: Spec,
    setup: Setup,
    handshake: Handshake,
    store: RunStore,
    facts: Facts,
    server_state: ServerState | None,
    say: Say,
) -> Result:
    assert store.folder is not None
    words = {"run": facts.run, "session": facts.sessions}
    engine = Sites(spec, handshake, setup.runtime, store.states, words, store.folder / "border.jsonl")
    evaluator = SiteEvaluator(
        StageEvaluator(setup.runtime, engine, setup.options.evaluate_every, setup.options.evaluate_clients), engine
    )
    heard = store.record.all("SELECT COALESCE(MAX(rowid), 0) FROM events")[0][0]
    loop = setup.loop(engine, store, LogCallback(say, store, heard), evaluator)
    say(
        f"{setup.method.name}: {setup.plan.rounds} rounds, {setup.model_name} ({setup.plan.layout.n:,} numbers); {engine.plan_line}"
    )
    with one_thread():
        if server_state is None:
            server_state = loop.begin()
        else:
            owe(loop, evaluator, store, server_state)
        try:
            server_state = loop.run(server_state)
        except RunFailed:  # what the unfinished round saw is history too
            done = store.record.all("SELECT COUNT(*) FROM rounds")[0][0]
            for kind, sentence in engine.events():
                store.record.event(done, None, kind, sentence)
            raise
    export(setup, store, server_state)
    say(f"finished after round {server_state.round}; kept in {store.folder}")
    return Result(setup, store, server_state)


def owe(loop: Loop, evaluator: SiteEvaluator, store: RunStore, server_state: ServerState) -> None:
    """A run that is gone on with still owes the judgements of its last round, if they had not come in."""
    round = server_state.round - 1
    done = store.record.all("SELECT COUNT(*) FROM metrics WHERE round = ? AND stage = 'L1'", (round,))[0][0]
    if round < 0 or done or not evaluator.is_due(round):
        return
    cohort = json.loads(store.record.all("SELECT cohort FROM rounds WHERE round = ?", (round,))[0][0])
    rows = evaluator.arrived(evaluator.engine.map(evaluator.orders(server_state, cohort, loop.open_round)))
    with store.record.transaction():  # only after the last round do answers come at once
        store.record.db.executemany("INSERT INTO metrics VALUES (?,?,?,?,?,?)", rows)


@dataclass
class LogCallback(RunCallback):
    """Says after each round what happened in it."""

    say: Say
    store: RunStore
    heard: int = 0  # the last event that was said

    def on_round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        shown = "" if accuracy is None else f", accuracy {accuracy:.4f}"
        self.say(f"round {round + 1}/{rounds}: {seconds:.1f} s{shown}")
        query = "SELECT rowid, kind, detail FROM events WHERE rowid > ? ORDER BY rowid"
        for row, kind, detail in self.store.record.all(query, (self.heard,)):
            self.heard = row
            self.say(f"  {kind}: {detail}")


# ---- what the server itself has --------------------------------------------------------------------------------------


def own_test(spec: Spec, config: Mapping[str, Any]) -> Samples | None:
    """The server's own test set, from its own data.py (`-c 'data="PATH/data.py"'`), where `test()` returns (x, y)."""
    if not config.get("data"):
        return None
    from undrift.deploy.client import imported_file

    function = getattr(imported_file(Path(str(config["data"])).expanduser(), "the server"), "test", None)
    if not callable(function):
        raise BadRequest("the server's data.py has no function test(); it returns (x, y)")
    x, y, _, _ = client_tensors(function(), "the server's test()")
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= len(spec.labels)):
        raise BadRequest(f"the server's test() has labels outside 0…{len(spec.labels) - 1}")
    return images.stored(x), y


def known_federation(folder: Path) -> Federation:
    """The federation of a deployment's run, for looking at it afterwards."""
    return at_server(specs.read(folder), list(Facts.of(folder).sizes.values()))
