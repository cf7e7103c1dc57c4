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

from undrift.aggregate import World
from undrift.bits import one_thread
from undrift.deploy import spec as specs
from undrift.deploy.judging import AtSites
from undrift.deploy.roll import Post, Roll, calling
from undrift.deploy.sites import Sites
from undrift.deploy.spec import Spec, at_server
from undrift.errors import BadRequest, RunFailed
from undrift.evaluate.stages import Judge
from undrift.federation import Federation, Rows, rows_of
from undrift.loop import Loop
from undrift.own import four
from undrift.reopen import opened, remade
from undrift.result import Result
from undrift.runner import about, export, resolved
from undrift.setup import Setup
from undrift.store.vault import Vault, written

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


def serve_run(spec: Spec, post: Post, config: Mapping[str, Any], say: Say = say_it) -> Result:
    """Begin the run in the folder `out`, or go on with it where one is there."""
    spec = specs.changed(spec, config)
    if not config.get("out"):
        raise BadRequest("a run needs a folder at the server: flwr run … -c 'out=\"/srv/undrift/first\"'")
    folder = Path(str(config["out"])).expanduser().resolve()
    test, proxy = own_sets(spec, config)
    if (folder / "roll.json").exists():
        return go_on(spec, post, folder, test, proxy, say)
    return begin(spec, post, folder, test, proxy, say)


def begin(spec: Spec, post: Post, folder: Path, test: Rows | None, proxy: Rows | None, say: Say) -> Result:
    if folder.exists() and any(path.name not in OURS for path in folder.iterdir()):
        raise BadRequest(f"{folder} is taken by something that is not a run of a deployment; choose another out")
    provisional = spec.setup(at_server(spec, [1] * len(spec.sites), test, proxy))
    for sentence in provisional.said:
        say(f"note: {sentence}")
    vault = Vault(folder, int(spec.options.memory * 10**9))
    try:
        run = uuid.uuid4().hex[:12]
        roll = Roll(spec, post, calling(spec, provisional, run, 1))
        say(f"roll call: waiting up to {spec.wait:g} s for {', '.join(spec.everybody)}")
        roll.wait(spec.wait)
        called(roll, vault, 0, say)
        here = roll.here() & set(spec.sites)
        if len(here) < spec.needed(len(spec.sites)):
            raise RunFailed(
                f"{len(here)} of {len(spec.sites)} sites answered the roll call and {spec.needed(len(spec.sites))} are "
                "needed; start the run again when they are there"
            )
        sizes = {site: roll.members[site].n if site in here else 0 for site in spec.sites}
        facts = Facts(run, 1, sizes)
        setup = spec.setup(at_server(spec, list(sizes.values()), test, proxy))
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in resolved(setup).items() if v is not None}
        (folder / "run.toml").write_text(tomli_w.dumps({**values, "about": about(setup), "deploy": spec.words()}))
        facts.keep(folder)
        return rounds(spec, setup, roll, vault, facts, None, say)
    finally:
        vault.close()


OURS = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock", "checkpoints", "states", "run.toml", "border.jsonl")


def go_on(spec: Spec, post: Post, folder: Path, test: Rows | None, proxy: Rows | None, say: Say) -> Result:
    facts = Facts.of(folder)
    before = specs.read(folder)
    if (before.sites, before.evaluate_only, before.labels) != (spec.sites, spec.evaluate_only, spec.labels):
        raise BadRequest(f"{folder} holds a run with other sites or labels; choose another out for a new one")
    setup = remade(folder, None, at_server(spec, list(facts.sizes.values()), test, proxy), None, spec.options.rounds)
    if specs.method_words(setup) != specs.method_words(spec.setup(setup.federation)):
        raise BadRequest(
            f"{folder} holds a run of {setup.method.name}, which is not this app's method; choose another out"
        )
    vault = opened(folder, setup)
    try:
        facts = replace(facts, sessions=facts.sessions + 1).keep(folder)
        world, said = vault.restore()
        for sentence in said:
            vault.record.event(world.round, None, "fallback", sentence)
        vault.record.event(world.round, None, "resumed", f"from the checkpoint before round {world.round}")
        say(f"going on with round {world.round} of {setup.plan.rounds} in {folder}")
        roll = Roll(spec, post, calling(spec, setup, facts.run, facts.sessions))
        roll.wait(spec.wait)
        called(roll, vault, world.round, say)
        return rounds(spec, setup, roll, vault, facts, world, say)
    finally:
        vault.close()


def called(roll: Roll, vault: Vault, round: int, say: Say) -> None:
    """The outcome of a roll call, in the record and on the screen: who is there, who was refused, who never answered."""
    for site in sorted(set(roll.spec.everybody) - roll.here()):
        roll.said.append(("absent", f"{site} did not answer the roll call"))
    for kind, sentence in roll.events():
        vault.record.event(round, None, kind, sentence)
        say(sentence)


def rounds(spec: Spec, setup: Setup, roll: Roll, vault: Vault, facts: Facts, world: World | None, say: Say) -> Result:
    assert vault.folder is not None
    words = {"run": facts.run, "session": facts.sessions}
    engine = Sites(spec, roll, setup.site, vault.states, words, vault.folder / "border.jsonl")
    judge = AtSites(Judge(setup.site, engine, setup.options.evaluate_every, setup.options.evaluate_clients), engine)
    heard = vault.record.all("SELECT COALESCE(MAX(rowid), 0) FROM events")[0][0]
    loop = Loop(setup, engine, vault, Telling(say, vault, heard), judge)
    say(
        f"{setup.method.name}: {setup.plan.rounds} rounds, {setup.model_name} ({setup.plan.layout.n:,} numbers); {engine.plan_line}"
    )
    with one_thread():
        if world is None:
            world = loop.begin()
        else:
            owe(loop, judge, vault, world)
        world = loop.run(world)
    export(setup, vault, world)
    say(f"finished after round {world.round}; kept in {vault.folder}")
    return Result(setup, vault, world)


def owe(loop: Loop, judge: AtSites, vault: Vault, world: World) -> None:
    """A run that is gone on with still owes the judgements of its last round, if they had not come in."""
    round = world.round - 1
    done = vault.record.all("SELECT COUNT(*) FROM metrics WHERE round = ? AND stage = 'L1'", (round,))[0][0]
    if round < 0 or done or not judge.is_due(round):
        return
    cohort = json.loads(vault.record.all("SELECT cohort FROM rounds WHERE round = ?", (round,))[0][0])
    rows = judge.arrived(judge.engine.map(judge.orders(world, cohort, loop.desktop)))
    with vault.record.transaction():  # only after the last round do answers come at once
        vault.record.db.executemany("INSERT INTO metrics VALUES (?,?,?,?,?,?)", rows)


@dataclass
class Telling:
    """Says after each round what happened in it."""

    say: Say
    vault: Vault
    heard: int = 0  # the last event that was said

    def round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        shown = "" if accuracy is None else f", accuracy {accuracy:.4f}"
        self.say(f"round {round + 1}/{rounds}: {seconds:.1f} s{shown}")
        query = "SELECT rowid, kind, detail FROM events WHERE rowid > ? ORDER BY rowid"
        for row, kind, detail in self.vault.record.all(query, (self.heard,)):
            self.heard = row
            self.say(f"  {kind}: {detail}")


# ---- what the server itself has --------------------------------------------------------------------------------------


def own_sets(spec: Spec, config: Mapping[str, Any]) -> tuple[Rows | None, Rows | None]:
    """The server's own test and proxy set, from its own data.py (`-c 'data="PATH/data.py"'`): `test()`, `proxy()`."""
    if not config.get("data"):
        return None, None
    from undrift.deploy.client import imported_file

    module = imported_file(Path(str(config["data"])).expanduser(), "the server")
    found: list[Rows | None] = []
    for name in ("test", "proxy"):
        function = getattr(module, name, None)
        rows: Rows | None = None
        if callable(function):
            x, y, _, _ = four(function(), f"the server's {name}()")
            rows = rows_of(x), y
            if len(y) and (int(y.min()) < 0 or int(y.max()) >= len(spec.labels)):
                raise BadRequest(f"the server's {name}() has labels outside 0…{len(spec.labels) - 1}")
        found.append(rows)
    return found[0], found[1]


def known_federation(folder: Path) -> Federation:
    """The federation of a deployment's run, for looking at it afterwards."""
    return at_server(specs.read(folder), list(Facts.of(folder).sizes.values()))
