"""A site's side: it receives an envelope, loads its own data and replies.

Flower starts a process per message, so only the site's folder outlives a reply.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import undrift
from undrift.contract.declare import Malformed
from undrift.core.determinism import deterministic
from undrift.core.errors import BadRequest
from undrift.deploy.base import BaseMissing, base_size, use_base
from undrift.deploy.claims import needs_effective_steps
from undrift.deploy.envelope import Envelope, check_fields
from undrift.deploy.packing import pack_replies
from undrift.deploy.policy import Policy, Refused
from undrift.deploy.site_store import SiteStore, StateLost, log_refusal, training_replies
from undrift.deploy.spec import Spec, resolved_parts, site_federation
from undrift.deploy.unpacking import Decoder, unpack_orders
from undrift.evaluate.client import client_metrics
from undrift.experiment.setup import Setup
from undrift.round.client import ClientRound, serve
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime

HANDSHAKE_FIELDS = {
    "kind": (str,), "run": (str,), "session": (int,), "version": (str,), "parts": (list,), "layout": (str,),
    "labels": (list,), "initial": (str,), "integers": (dict,), "base": (str,), "frozen": (str,),
}  # fmt: skip
ORDERS_FIELDS = {
    "kind": (str,),
    "run": (str,),
    "session": (int,),
    "clients": (int,),
    "total": (int,),
    "orders": (list,),
}


@dataclass(frozen=True)
class Node:
    """The site's node configuration: `site="berlin" data="/srv/data.py"`, and optionally its `folder` and `policy`."""

    site: str
    data: Path
    folder: Path
    policy: Path

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> Node:
        for name in ("site", "data"):
            if not config.get(name):
                example = '--node-config \'site="NAME" data="PATH/data.py"\''
                raise Refused("config", f"{name} is missing in this SuperNode's --node-config; write {example}")
        data = Path(str(config["data"])).expanduser()
        folder, policy = config.get("folder") or data.parent / "undrift", config.get("policy")
        if policy and not Path(str(policy)).expanduser().is_file():
            raise Refused(
                "policy", f"there is no file {policy}, which this SuperNode's --node-config names as its policy"
            )
        return Node(
            str(config["site"]), data, Path(str(folder)).expanduser(),
            Path(str(policy or data.parent / "policy.toml")).expanduser(),
        )  # fmt: skip


def handle(spec: Spec, config: Mapping[str, Any], envelope: Envelope) -> Envelope:
    """The reply to an envelope. Of an error only a code leaves; the details stay in the site's log."""
    site = str(config.get("site", ""))
    try:
        node = Node.from_config(config)
    except Refused as error:
        log(f"{site or 'this site'} cannot take part: {error}")
        return refusal(site, error.code)
    try:
        if envelope.head.get("kind") == "roll":
            return handle_handshake(spec, node, envelope)
        return handle_orders(spec, node, envelope)
    except Refused as error:
        code, why = error.code, str(error)
    except Malformed as error:
        code, why = "order", str(error)
    except (Exception, SystemExit) as error:
        log(traceback.format_exc())
        code, why = "error", f"{type(error).__name__}: {error}"
    log(f"{site} cannot take part: {why}")
    reply = refusal(site, code)
    try:
        run = envelope.head.get("run")
        log_refusal(node.folder, run if isinstance(run, str) else "", reply, why)
    except OSError as error:  # the folder may be the very reason
        log(f"{node.folder} cannot be written, so the refusal is not in left.jsonl: {error}")
    return reply


def refusal(site: str, code: str) -> Envelope:
    return Envelope({"kind": "refusal", "site": site, "code": code})


def log(text: str) -> None:
    print(f"undrift: {text}", file=sys.stderr, flush=True)


# ---- the handshake -------------------------------------------------------------------------------------------------


def handle_handshake(spec: Spec, node: Node, envelope: Envelope) -> Envelope:
    request = check_fields(envelope.head, HANDSHAKE_FIELDS, optional=("frozen",))
    if request["version"] != undrift.__version__:
        raise Refused(
            "version",
            f"{node.site} has undrift {undrift.__version__}, the server {request['version']}; install the same version",
        )
    setup = site_setup(spec, node)
    parts = resolved_parts(setup)
    if parts != request["parts"]:
        raise Refused(
            "method",
            f"{node.site} has the method {', '.join(parts)}, the server {', '.join(map(str, request['parts']))}",
        )
    if setup.plan.layout.signature != request["layout"]:
        raise Refused(
            "layout",
            f"the layout of {node.site}'s model {setup.model_name} differs from the server's; use the same model code",
        )
    policy = Policy.read(node.policy)
    policy.check_method(setup)
    site_store = SiteStore(node.folder, request["run"]).create()
    decoder = Decoder(envelope, setup.plan, setup.runtime.model.integers())
    initial = decoder.array(request["initial"], torch.float32, (setup.plan.layout.n,)).clone()
    integers = decoder.integers(request["integers"], private=True)
    sent = None
    if "frozen" in request:
        sent = decoder.array(request["frozen"], torch.uint8, (base_size(setup.plan.layout),))
    use_base(setup, node.site, site_store, request["base"], sent)
    head = {
        "kind": "roll",
        "site": node.site,
        "version": undrift.__version__,
        "n": policy.told_size(len(setup.federation.y)),
        "tests": policy.told_size(len(setup.federation.test_y)),
        "labels": list(setup.federation.labels),
        "layout": setup.plan.layout.signature,
    }
    reply = Envelope(head)
    with site_store.locked():
        site_store.save_initial(request["session"], initial, integers, request["base"])
        site_store.log_sent(reply)
    log(f"{node.site} is number {spec.number(node.site)} of {len(spec.all_sites)}; its folder is {site_store.folder}")
    return reply


def site_setup(spec: Spec, node: Node) -> Setup:
    """The run at this site, with the site's own data under its client number. Θ⁰ comes with the handshake, so a file
    that the run started from is not needed here."""
    spec = replace(spec, table={name: value for name, value in spec.table.items() if name != "init"})
    data, labels = load_site_data(node)
    try:
        return spec.setup(site_federation(spec, node.site, data, labels))
    except Refused:
        raise
    except Exception as error:  # reading the data can run the site's own code
        raise data_py_error(node.site, error, node.data) from None


def load_site_data(node: Node) -> tuple[Any, list[str] | None]:
    """The result of `load()` and the list `LABELS` of the site's data.py, None if it has none."""
    module = import_data_py(node.data, node.site)
    if not callable(getattr(module, "load", None)):
        raise Refused(
            "data",
            f"{node.site}'s data.py has no function load(); define one that returns (x, y) or (x, y, x_test, y_test)",
        )
    labels = getattr(module, "LABELS", None)
    try:
        return module.load(), [str(label) for label in labels] if isinstance(labels, (list, tuple)) else None
    except (Exception, SystemExit) as error:
        raise data_py_error(node.site, error, node.data) from None


def import_data_py(path: Path, owner: str) -> Any:
    """The user's own data.py as a module. It may import files beside it."""
    if not path.is_file():
        raise Refused("data", f"there is no file {path}; give {owner}'s data.py by its full path")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    loader = importlib.machinery.SourceFileLoader("undrift_own_data", str(path))
    module_spec = importlib.util.spec_from_file_location("undrift_own_data", path, loader=loader)
    assert module_spec is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        loader.exec_module(module)
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, (SyntaxError, UnicodeDecodeError)) or "null bytes" in str(error):
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise Refused(
                "data", f"{owner}'s {path.name} is not Python: {type(error).__name__}{line}; correct the file"
            ) from None
        raise data_py_error(owner, error, path) from None
    except (Exception, SystemExit) as error:
        raise data_py_error(owner, error, path) from None
    return module


def data_py_error(owner: str, error: BaseException, file: Path) -> Refused:
    """The sentence and the traceback stay at the site: a message may quote data."""
    if isinstance(error, BadRequest):  # one of our own sentences about the data
        return Refused("data", str(error))
    if not isinstance(error, SystemExit) or isinstance(error.code, str):  # an exit may say why
        log("".join(traceback.format_exception(error)))
    if isinstance(error, SystemExit):
        return Refused(
            "data", f"{owner}'s {file.name} exits instead of returning data; remove the call that ends the program"
        )
    return Refused(
        "data",
        f"{owner}'s {file.name} raised {type(error).__name__}; correct the file, the log there has the traceback",
    )


# ---- orders --------------------------------------------------------------------------------------------------------


def handle_orders(spec: Spec, node: Node, envelope: Envelope) -> Envelope:
    head = check_fields(envelope.head, ORDERS_FIELDS)
    site_store, number = SiteStore(node.folder, head["run"]), spec.number(node.site)
    unknown_run = Envelope({"kind": "unknown run", "site": node.site})  # the server repeats the handshake
    if not site_store.knows_run:  # its folder was removed
        log_refusal(node.folder, head["run"], unknown_run, "the run's folder is not here")
        return unknown_run
    policy = Policy.read(node.policy)
    with site_store.locked():
        session, initial, integers, base = site_store.load_initial()
        if head["session"] < session:  # sent before the server was restarted
            site_store.log_sent(unknown_run, why="the order was sent before the server was restarted")
            return unknown_run
        setup = site_setup(spec, node)
        policy.check_method(setup)
        try:
            use_base(setup, node.site, site_store, base)
        except BaseMissing:  # its file was removed
            site_store.log_sent(unknown_run, why="the file of the base is not here")
            return unknown_run
        runtime = site_runtime(setup, head["clients"], head["total"], initial)
        orders = unpack_orders(envelope, runtime.plan, initial, {**runtime.model.integers(), **integers}, number)
        policy.check_orders(orders, training_replies(node.folder))
        needs_steps = needs_effective_steps(runtime.plan)
        replies = [
            policy.apply(execute_order(runtime, setup, node, site_store, order), runtime.plan, needs_steps)
            for order in orders
        ]
        reply = pack_replies(orders, replies, runtime.plan, node.site)
        site_store.log_sent(reply, orders[-1].round, [order.work for order in orders])
    return reply


def site_runtime(setup: Setup, clients: int, total: int, initial: torch.Tensor) -> Runtime:
    """The site's runtime with the handshake's numbers and Θ⁰, so that all results equal a simulation's."""
    runtime = Runtime(
        replace(setup.plan, clients=clients, total=total),
        setup.federation,
        setup.runtime.model,
        setup.runtime.loss,
        setup.runtime.augment,
    )
    runtime.initial, runtime.at_site = initial.to(runtime.model.device), True
    return runtime


def execute_order(runtime: Runtime, setup: Setup, node: Node, site_store: SiteStore, order: Order) -> Reply:
    try:
        order = replace(order, state=site_store.load_state(order.state_round))
    except StateLost as error:
        log(f"round {order.round}: {error}")
        return Reply(order.round, order.client).failed("lost", str(error))
    reply = serve(runtime, order)
    if reply.failure is not None:  # only its kind leaves
        log(f"round {order.round}: {reply.failure.detail}\n{reply.failure.traceback}")
    if reply.failure is None and order.work == "personalize":
        if runtime.plan.private is None:
            with deterministic(0):
                metrics = client_metrics(runtime, order, [(1.0, order.vector)], order.integers)
            reply.metrics["G"] = metrics.get("own", {})
        save_models(runtime, setup, node, site_store, order)
    if reply.failure is None and reply.stateful:
        site_store.save_state(order.round, reply.state, order.keep_round)
    site_store.log_notes(order.round, reply.notes)
    return reply


def save_models(runtime: Runtime, setup: Setup, node: Node, site_store: SiteStore, order: Order) -> None:
    """Write the models the site uses after receiving this vector (stage L1) to the site's folder."""
    with deterministic(0):
        client_round = ClientRound(runtime, order)
        client_round.prepare()
        mixture = [(weight, vector.cpu().clone()) for weight, vector in client_round.mixture(client_round.start)]
    site_store.save_models(setup, node.site, order.round, order.vector, client_round.integers, mixture)
