"""The only file that uses Flower's API: envelopes as Flower records, and the two Flower apps.

An app's own files contain only `app = server_app(__file__)` and `app = client_app(__file__)`.
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
from undrift.deploy.envelope import Envelope, Parcel, raw, reason
from undrift.deploy.handshake import GONE, Connection

NODE_UNAVAILABLE = 5  # Flower's error code for a node that no longer reports
RAW = "undrift.raw"  # the serialisation of arrays: little-endian bytes


def to_records(envelope: Envelope) -> RecordDict:
    arrays = {
        name: Array(str(t.dtype).removeprefix("torch."), tuple(t.shape), RAW, raw(t))
        for name, t in envelope.arrays.items()
    }
    return RecordDict({"head": ConfigRecord({"text": envelope.text}), "arrays": ArrayRecord(arrays)})


def to_parcel(content: RecordDict) -> Parcel:
    """Received records, taken apart but not decoded."""
    try:
        text, arrays = content["head"]["text"], content["arrays"]
    except KeyError as missing:
        raise Malformed(f"the message has no record {missing}") from None
    if not isinstance(text, str) or not isinstance(arrays, ArrayRecord) or len(content) != 2:
        raise Malformed("the message does not consist of a header and arrays")
    for name, array in arrays.items():
        if array.stype != RAW:
            raise Malformed(f"{name} is serialised as {array.stype!r}, which is not accepted")
    return Parcel(text, {name: (array.dtype, tuple(array.shape), array.data) for name, array in arrays.items()})


def to_envelope(content: RecordDict) -> Envelope:
    return to_parcel(content).open()


class FlowerTransport:
    """Sends and receives through Flower's grid, polling more often than Flower's own loop."""

    pause = 0.7  # seconds; each poll costs the SuperLink a request, and Flower's own loop polls every 3 s

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def nodes(self) -> dict[int, Connection]:
        return {node.node_id: Connection(node.name, node.last_activated_at) for node in self.grid.get_nodes()}

    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None:
        kind = "query" if envelope.head["kind"] == "roll" else "train"
        return next(iter(self.grid.push_messages([Message(to_records(envelope), node, kind, ttl=seconds + 60)])), None)

    def fetch(self, message_ids: Collection[str]) -> dict[str, Parcel | str]:
        replies: dict[str, Parcel | str] = {}
        for message in self.grid.pull_messages(list(message_ids)):
            try:
                reply: Parcel | str = to_parcel(message.content) if message.has_content() else error_of(message)
            except Exception as error:  # what one node sends must not end the run
                reply = reason(error)
            replies[message.metadata.reply_to_message_id] = reply
        return replies


def error_of(message: Message) -> str:
    if message.error.code == NODE_UNAVAILABLE:
        return GONE
    return f"Flower reports: {(message.error.reason or f'error {message.error.code}').splitlines()[0]}"


def server_app(file: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        disable_telemetry()
        try:
            server.serve_run(spec.read(app_folder(file)), FlowerTransport(grid), dict(context.run_config))
        except (BadRequest, RunFailed) as error:
            server.log_to_stderr(str(error))
            raise error.with_traceback(None) from None  # Flower marks the run as failed and keeps the sentence

    return app


def client_app(file: str) -> ClientApp:
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        disable_telemetry()
        try:
            reply = client.handle(spec.read(app_folder(file)), dict(context.node_config), to_envelope(message.content))
        except Exception as error:  # Flower would send its text to the server
            client.log(f"{type(error).__name__}: {error}")
            reply = client.refusal(str(context.node_config.get("site", "")), "order")
        return Message(to_records(reply), reply_to=message)

    app.query()(handle)
    app.train()(handle)
    return app


def app_folder(file: str) -> Path:
    """The app's folder; `file` is in its package."""
    return Path(file).resolve().parents[1]


def disable_telemetry() -> None:
    """Flower sends usage reports to its makers by default. Nothing that Undrift starts does."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")


__all__: list[Any] = ["client_app", "server_app"]
