"""A deployment in one process, without a network. Envelopes pass through bytes, and sites have their own folders."""

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
from undrift.deploy.envelope import Envelope, Parcel, raw
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
    """An uneven share of the digits per site, at most 60 samples: (x, y)."""
    federation = ud.federate("digits", "dirichlet(0.5)", clients=clients, seed=3)
    return [(x[:60, :, :, 0].numpy(), y[:60].numpy()) for x, y in map(federation.train, range(clients))]


def parcel(envelope: Envelope) -> Parcel:
    arrays = {n: (str(t.dtype).removeprefix("torch."), tuple(t.shape), raw(t)) for n, t in envelope.arrays.items()}
    return Parcel(envelope.text, arrays)


def over_the_wire(envelope: Envelope) -> Envelope:
    return parcel(envelope).open()


@dataclass
class InProcess:
    """A transport that calls the sites directly. Tests set which nodes are `online`, change replies with `change_reply`
    and act before an envelope is sent with `before_send`."""

    spec: Spec
    configs: dict[int, dict[str, Any]]
    online: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    since: dict[int, str] = field(default_factory=dict)
    change_reply: Callable[[int, Envelope, Envelope], Envelope | Parcel | str | None] | None = None
    before_send: Callable[[InProcess, int, Envelope], None] | None = None
    pause: float = 0.001
    down: list[tuple[int, Envelope]] = field(default_factory=list)
    up: list[tuple[int, Envelope]] = field(default_factory=list)
    replies: dict[str, Parcel | str] = field(default_factory=dict)

    def nodes(self) -> dict[int, Connection]:
        return {node: Connection(self.names.get(node, ""), self.since.get(node, "")) for node in sorted(self.online)}

    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None:
        message_id = f"{len(self.down)}"
        if self.before_send is not None:
            self.before_send(self, node, envelope)
        self.down.append((node, envelope))
        if node not in self.online:
            return message_id
        threads = torch.get_num_threads()
        reply: Envelope | Parcel | str | None = client.handle(self.spec, self.configs[node], over_the_wire(envelope))
        assert torch.get_num_threads() == threads
        assert isinstance(reply, Envelope)
        self.up.append((node, reply))
        if self.change_reply is not None:
            reply = self.change_reply(node, envelope, reply)
        if reply is not None:
            self.replies[message_id] = parcel(reply) if isinstance(reply, Envelope) else reply
        return message_id

    def fetch(self, message_ids: Any) -> dict[str, Parcel | str]:
        return {message_id: self.replies.pop(message_id) for message_id in message_ids if message_id in self.replies}


@dataclass
class Deployment:
    folder: Path
    transport: InProcess
    log: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def serve(self, **config: Any) -> Any:
        return server.serve_run(self.transport.spec, self.transport, {"out": str(self.run), **config}, self.log.append)

    def site_folder(self, site: str) -> Path:
        (folder,) = (self.folder / site / "undrift").iterdir()
        return folder

    def events(self) -> list[tuple[Any, ...]]:
        from undrift.store.record import rows_of

        return rows_of(self.run, "SELECT round, client, kind, detail FROM events ORDER BY rowid")

    def kinds(self, client: int | None = None) -> list[tuple[int, str]]:
        """(round, kind) of the events, of one site or of all."""
        return [(round, kind) for round, site, kind, _ in self.events() if client is None or site == client]

    def change_reply(self, node: int, round: int, change: Callable[[Envelope], Envelope | Parcel | str | None]) -> None:
        """Change one node's reply to one training order."""

        def change_one(sender: int, envelope: Envelope, reply: Envelope) -> Envelope | Parcel | str | None:
            orders = envelope.head.get("orders", [])
            is_training = orders and orders[-1]["round"] == round and any(o["work"] == "train" for o in orders)
            return change(reply) if sender == node and is_training else reply

        self.transport.change_reply = change_one

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
    """Sites that train and sites that only evaluate, each with its own folder."""
    deploy_options = {
        name: more.pop(name)
        for name in ("quorum", "deadline", "wait", "norm", "relative_norm", "max_samples", "unnamed_nodes")
        if name in more
    }
    all_sites = (*sites, *evaluate_only)
    for site, (x, y) in zip(all_sites, slices(len(all_sites)), strict=True):
        (folder / site).mkdir(exist_ok=True)
        np.savez(folder / site / "data.npz", x=x, y=y)
        (folder / site / "data.py").write_text(DATA)
    spec = Spec(
        {**SETTINGS, "method": method, **more}, None, sites, tuple(map(str, range(10))), (1, 8, 8), evaluate_only,
        **{"wait": 0.05, "deadline": 0.05, **deploy_options},
    )  # fmt: skip
    configs = {100 - k: {"site": site, "data": str(folder / site / "data.py")} for k, site in enumerate(all_sites)}
    names = {node: config["site"] for node, config in configs.items()}  # as the operator registered the keys
    return Deployment(folder, InProcess(spec, configs, set(configs), names))


@pytest.fixture
def deploy(tmp_path):
    return lambda *args, **more: deployment(tmp_path, *args, **more)


@pytest.fixture(scope="session")
def deploy_in():
    return deployment


@pytest.fixture(scope="session")
def wire():
    return over_the_wire


@pytest.fixture
def simulate():
    """A simulation of the same clients, with a deployment's cap on weights."""

    def run(method: str = "scaffold+fliu", clients: int = 3, **more: Any) -> Any:
        federation = ud.Federation.from_clients(slices(clients)[:3], labels=[str(c) for c in range(10)])
        return ud.run(method, federation, **{**SETTINGS, "weight_cap": 0.5, "out": False, **more})

    return run
