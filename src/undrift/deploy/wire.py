"""The only file that knows Flower: parcels as its records, and its two apps.

An app's own files hold nothing but `app = server_app(__file__)` and `app = client_app(__file__)`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from undrift.contract.declare import Malformed
from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy import client, server, spec
from undrift.deploy.envelope import Envelope, opened, raw
from undrift.deploy.handshake import GONE, Connection

NODE_UNAVAILABLE = 5  # Flower's error code for a node that has stopped to report
RAW = "undrift.raw"  # how arrays are serialised: little-endian bytes, nothing else


def records(envelope: Envelope) -> RecordDict:
    arrays = {
        name: Array(str(t.dtype).removeprefix("torch."), tuple(t.shape), RAW, raw(t))
        for name, t in envelope.arrays.items()
    }
    return RecordDict({"head": ConfigRecord({"text": envelope.text}), "arrays": ArrayRecord(arrays)})


def parcel_of(content: RecordDict) -> Envelope:
    try:
        text, arrays = content["head"]["text"], content["arrays"]
    except KeyError as missing:
        raise Malformed(f"the message lacks its record {missing}") from None
    if not isinstance(text, str) or not isinstance(arrays, ArrayRecord) or len(content) != 2:
        raise Malformed("the message is not made of a header and arrays")
    for name, array in arrays.items():
        if array.stype != RAW:
            raise Malformed(f"{name} is serialised as {array.stype!r}, which is not accepted")
    return opened(text, {name: (array.dtype, array.shape, array.data) for name, array in arrays.items()})


class FlowerTransport:
    """The server's post: Flower's grid, looked at more often than its own loop does."""

    pause = 0.7  # each look costs the SuperLink a request; Flower's own loop looks every 3 s

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> dict[int, Connection]:
        return {node.node_id: Connection(node.name, node.last_activated_at) for node in self.grid.get_nodes()}

    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None:
        kind = "query" if envelope.head["kind"] == "roll" else "train"
        return next(iter(self.grid.push_messages([Message(records(envelope), node, kind, ttl=seconds + 60)])), None)

    def fetch(self, tickets: Collection[str]) -> dict[str, Envelope | str]:
        found: dict[str, Envelope | str] = {}
        for message in self.grid.pull_messages(list(tickets)):
            try:
                answer: Envelope | str = parcel_of(message.content) if message.has_content() else error_of(message)
            except Malformed as wrong:
                answer = str(wrong)
            found[message.metadata.reply_to_message_id] = answer
        return found


def error_of(message: Message) -> str:
    if message.error.code == NODE_UNAVAILABLE:
        return GONE
    return f"Flower says: {(message.error.reason or f'error {message.error.code}').splitlines()[0]}"


def server_app(file: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        quiet()
        try:
            server.serve_run(spec.read(home_of(file)), FlowerTransport(grid), dict(context.run_config))
        except (BadRequest, RunFailed) as error:
            server.say_it(str(error))
            raise error.with_traceback(None) from None  # Flower marks the run as failed and keeps the sentence

    return app


def client_app(file: str) -> ClientApp:
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        quiet()
        try:
            reply = client.answer(spec.read(home_of(file)), dict(context.node_config), parcel_of(message.content))
        except (BadRequest, Malformed) as error:
            client.say(str(error))
            reply = Envelope(
                {"kind": "refusal", "site": str(context.node_config.get("site", "")), "sentence": str(error)}
            )
        return Message(records(reply), reply_to=message)

    app.query()(handle)
    app.train()(handle)
    return app


def home_of(file: str) -> Path:
    """The app's folder: the file lies in its package."""
    return Path(file).resolve().parents[1]


def quiet() -> None:
    """Flower reports usage to its makers unless it is told not to; so does nothing that Undrift starts."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")


__all__: list[Any] = ["client_app", "server_app"]
