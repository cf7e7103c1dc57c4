"""A deployment inside one process: parcels go through bytes, sites through their own folders, only the network is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.deploy import client, server
from undrift.deploy.envelope import Envelope, opened, raw
from undrift.deploy.handshake import Connection
from undrift.deploy.spec import Spec

SITES = ("berlin", "oslo", "turin")
SETTINGS: dict[str, Any] = {
    "rounds": 5,
    "epochs": 1,
    "batch": 16,
    "model": "mlp(8)",
    "selection": "all",
    "evaluate_every": 2,
}
DATA = """
import numpy as np
from pathlib import Path
LABELS = [str(c) for c in range(10)]
def load():
    file = np.load(Path(__file__).with_name("data.npz"))
    return file["x"], file["y"]
"""


@cache
def slices(clients: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Digits, dealt unevenly, a fraction of them: (x, y) per site."""
    federation = ud.federate("digits", "dirichlet(0.5)", clients=clients, seed=3)
    return [(x[:60, :, :, 0].numpy(), y[:60].numpy()) for x, y in map(federation.train, range(clients))]


def over_the_wire(envelope: Envelope) -> Envelope:
    arrays = {n: (str(t.dtype).removeprefix("torch."), tuple(t.shape), raw(t)) for n, t in envelope.arrays.items()}
    return opened(envelope.text, arrays)


@dataclass
class InProcess:
    """Carries parcels by calling the sites. `online` and `spoil` are the tests' hands: who is there, what goes wrong."""

    spec: Spec
    configs: dict[int, dict[str, Any]]
    online: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    since: dict[int, str] = field(default_factory=dict)
    spoil: Callable[[int, Envelope, Envelope], Envelope | str | None] | None = None
    before: Callable[[InProcess, int, Envelope], None] | None = None
    pause: float = 0.001
    down: list[tuple[int, Envelope]] = field(default_factory=list)
    up: list[tuple[int, Envelope]] = field(default_factory=list)
    box: dict[str, Envelope | str] = field(default_factory=dict)

    def nodes(self) -> dict[int, Connection]:
        return {node: Connection(self.names.get(node, ""), self.since.get(node, "")) for node in sorted(self.online)}

    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None:
        ticket = f"{len(self.down)}"
        if self.before is not None:
            self.before(self, node, envelope)
        self.down.append((node, envelope))
        if node not in self.online:
            return ticket
        threads = torch.get_num_threads()
        reply: Envelope | str | None = client.answer(self.spec, self.configs[node], over_the_wire(envelope))
        assert torch.get_num_threads() == threads
        assert isinstance(reply, Envelope)
        self.up.append((node, reply))
        if self.spoil is not None:
            reply = self.spoil(node, envelope, reply)
        if reply is not None:
            self.box[ticket] = over_the_wire(reply) if isinstance(reply, Envelope) else reply
        return ticket

    def fetch(self, tickets: Any) -> dict[str, Envelope | str]:
        return {ticket: self.box.pop(ticket) for ticket in tickets if ticket in self.box}


@dataclass
class Deployment:
    folder: Path
    transport: InProcess
    said: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def serve(self, **config: Any) -> Any:
        return server.serve_run(self.transport.spec, self.transport, {"out": str(self.run), **config}, self.said.append)

    def site_store(self, site: str) -> Path:
        (site_store,) = (self.folder / site / "undrift").iterdir()
        return site_store

    def events(self) -> list[tuple[Any, ...]]:
        from undrift.store.record import rows_of

        return rows_of(self.run, "SELECT round, client, kind, detail FROM events ORDER BY rowid")

    def kinds(self, client: int | None = None) -> list[tuple[int, str]]:
        """(round, kind) of the events, of one site or of all."""
        return [(round, kind) for round, who, kind, _ in self.events() if client is None or who == client]

    def spoil(self, node: int, round: int, change: Callable[[Envelope], Envelope | str | None]) -> None:
        """Change what one node answers to one training order."""

        def spoil(sender: int, envelope: Envelope, reply: Envelope) -> Envelope | str | None:
            orders = envelope.head.get("orders", [])
            hit = (
                sender == node and orders and orders[-1]["round"] == round and any(o["work"] == "train" for o in orders)
            )
            return change(reply) if hit else reply

        self.transport.spoil = spoil

    def metrics(self, stage: str, data: str = "own") -> dict[tuple[int, int | None], float]:
        from undrift.store.record import rows_of

        query = "SELECT round, client, value FROM metrics WHERE stage=? AND data=? AND metric='accuracy'"
        return {(round, client): value for round, client, value in rows_of(self.run, query, (stage, data))}


def deployment(
    folder: Path,
    method: str = "scaffold+fliu",
    sites: tuple[str, ...] = SITES,
    evaluate_only: tuple[str, ...] = (),
    **more: Any,
) -> Deployment:
    """Three sites (and those that only evaluate), each with its own folder."""
    own = {name: more.pop(name) for name in ("quorum", "deadline", "wait", "norm") if name in more}
    everybody = (*sites, *evaluate_only)
    for site, (x, y) in zip(everybody, slices(len(everybody)), strict=True):
        (folder / site).mkdir(exist_ok=True)
        np.savez(folder / site / "data.npz", x=x, y=y)
        (folder / site / "data.py").write_text(DATA)
    spec = Spec(
        {**SETTINGS, "method": method, **more}, None, sites, tuple(map(str, range(10))), (1, 8, 8), evaluate_only,
        **{"wait": 0.05, "deadline": 0.05, **own},
    )  # fmt: skip
    configs = {100 - k: {"site": site, "data": str(folder / site / "data.py")} for k, site in enumerate(everybody)}
    return Deployment(folder, InProcess(spec, configs, set(configs)))


@pytest.fixture
def deploy(tmp_path):
    return lambda *words, **more: deployment(tmp_path, *words, **more)


@pytest.fixture(scope="session")
def deploy_in():
    return deployment


@pytest.fixture(scope="session")
def wire():
    return over_the_wire


@pytest.fixture
def simulate():
    """The same clients in a simulation."""

    def run(method: str = "scaffold+fliu", clients: int = 3, **more: Any) -> Any:
        own = slices(clients)
        federation = ud.Federation.from_clients(own[:3], labels=[str(c) for c in range(10)])
        return ud.run(method, federation, **{**SETTINGS, "out": False, **more})

    return run
