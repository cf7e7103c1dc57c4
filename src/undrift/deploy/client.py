"""A site's half: a parcel comes in, the site's own data are loaded, an answer goes out.

Flower starts a process per message, so nothing lives longer than one answer except the site's folder.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import undrift
from undrift.core.determinism import deterministic
from undrift.core.errors import BadRequest
from undrift.deploy.codec import Decoder, pack_replies, unpack_orders
from undrift.deploy.envelope import LONGEST, Envelope, fields
from undrift.deploy.site_store import Lost, SiteStore
from undrift.deploy.spec import Spec, at_site, method_words
from undrift.evaluate.client import client_metrics
from undrift.experiment.setup import Setup
from undrift.round.client import ClientRound, serve
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime

CALL = {
    "kind": (str,), "run": (str,), "session": (int,), "version": (str,), "parts": (list,), "layout": (str,),
    "labels": (list,), "initial": (str,), "integers": (dict,),
}  # fmt: skip
ORDERS = {"kind": (str,), "run": (str,), "session": (int,), "clients": (int,), "total": (int,), "orders": (list,)}


@dataclass(frozen=True)
class Node:
    """What the site's own node configuration says: `site="berlin" data="/srv/data.py"`."""

    site: str
    data: Path
    folder: Path

    @staticmethod
    def of(config: Mapping[str, Any]) -> Node:
        for name in ("site", "data"):
            if not config.get(name):
                raise BadRequest(
                    f'this SuperNode\'s --node-config lacks {name}; write --node-config \'site="NAME" data="PATH/data.py"\''
                )
        data = Path(str(config["data"])).expanduser()
        return Node(str(config["site"]), data, Path(str(config.get("folder") or data.parent / "undrift")).expanduser())


def answer(spec: Spec, config: Mapping[str, Any], envelope: Envelope) -> Envelope:
    """Whatever goes wrong here becomes a sentence: in full at the site, without details in the answer."""
    site = str(config.get("site", ""))
    try:
        node = Node.of(config)
        if envelope.head.get("kind") == "roll":
            return handshake(spec, node, envelope)
        return work(spec, node, envelope)
    except BadRequest as error:
        say(f"{site or 'this site'} cannot take part: {error}")
        return Envelope({"kind": "refusal", "site": site, "sentence": str(error)[:LONGEST]})
    except Exception as error:
        say(f"{site or 'this site'} cannot take part:\n{traceback.format_exc()}")
        return Envelope(
            {"kind": "refusal", "site": site, "sentence": f"{type(error).__name__}; the site's log has the rest"}
        )


def say(text: str) -> None:
    print(f"undrift: {text}", file=sys.stderr, flush=True)


# ---- the roll call -------------------------------------------------------------------------------------------------


def handshake(spec: Spec, node: Node, envelope: Envelope) -> Envelope:
    call = fields(envelope.head, CALL)
    if call["version"] != undrift.__version__:
        raise BadRequest(
            f"{node.site} has undrift {undrift.__version__}, the server {call['version']}; install the same"
        )
    setup = opened(spec, node)
    if method_words(setup) != call["parts"]:
        raise BadRequest(
            f"{node.site} has the method {', '.join(method_words(setup))}, the server {', '.join(call['parts'])}"
        )
    if setup.plan.layout.signature != call["layout"]:
        raise BadRequest(
            f"{node.site}'s model {setup.model_name} is not laid out as the server's; is its code the same?"
        )
    site_store = SiteStore(node.folder, call["run"]).make()
    reader = Decoder(envelope, setup.plan, setup.runtime.model.integers())
    initial = reader.array(call["initial"], torch.float32, (setup.plan.layout.n,)).clone()
    integers = reader.integers(call["integers"], private=True)
    with site_store.locked():
        site_store.begin(call["session"], initial, integers)
        reply = Envelope({
            "kind": "roll", "site": node.site, "version": undrift.__version__, "n": len(setup.federation.y),
            "tests": len(setup.federation.test_y), "labels": list(setup.federation.labels),
            "layout": setup.plan.layout.signature,
        })  # fmt: skip
        site_store.left(reply, None)
    say(f"{node.site} is number {spec.number(node.site)} of {len(spec.everybody)}; its folder is {site_store.folder}")
    return reply


def opened(spec: Spec, node: Node) -> Setup:
    """The run as this site sees it, with its own data under its own number."""
    given, labels = own_data(node)
    return spec.setup(at_site(spec, node.site, given, labels))


def own_data(node: Node) -> tuple[Any, list[str]]:
    """What the site's data.py gives: `load()` and `LABELS`."""
    module = imported_file(node.data, node.site)
    if not callable(getattr(module, "load", None)):
        raise BadRequest(f"{node.site}'s data.py has no function load(); it returns (x, y) or (x, y, x_test, y_test)")
    if not isinstance(getattr(module, "LABELS", None), (list, tuple)):
        raise BadRequest(f"{node.site}'s data.py has no list LABELS: the names of the classes 0, 1, 2, …")
    try:
        return module.load(), [str(label) for label in module.LABELS]
    except Exception as error:
        raise raised(node.site, error) from None


def imported_file(path: Path, who: str) -> Any:
    """A person's own data.py, which may import its neighbours."""
    if not path.is_file():
        raise BadRequest(f"there is no file {path}; name {who}'s data.py by its full path")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module_spec = importlib.util.spec_from_file_location("undrift_own_data", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise raised(who, error) from None
    return module


def raised(who: str, error: Exception) -> BadRequest:
    """In full where the person is; what leaves the site names the kind alone, because a message may quote data."""
    say("".join(traceback.format_exception(error)))
    return BadRequest(f"{who}'s data.py raised {type(error).__name__}; the log there has the rest")


# ---- orders --------------------------------------------------------------------------------------------------------


def work(spec: Spec, node: Node, envelope: Envelope) -> Envelope:
    head = fields(envelope.head, ORDERS)
    site_store, number = SiteStore(node.folder, head["run"]), spec.number(node.site)
    if not site_store.known:
        return Envelope({"kind": "stranger", "site": node.site})  # its folder is gone: the server calls it again
    with site_store.locked():
        session, initial, integers = site_store.facts()
        if head["session"] < session:
            return Envelope({"kind": "stranger", "site": node.site})  # sent before the server was started again
        setup = opened(spec, node)
        site = placed(setup, head["clients"], head["total"], initial)
        orders = unpack_orders(envelope, site.plan, initial, {**site.model.integers(), **integers}, number)
        replies = [done(site, setup, node, site_store, order) for order in orders]
        reply = pack_replies(orders, replies, site.plan, node.site)
        site_store.left(reply, orders[-1].round)
    return reply


def placed(setup: Setup, clients: int, total: int, initial: torch.Tensor) -> Runtime:
    """The site with the numbers of the roll call and Θ⁰, so that everything equals a simulation's."""
    site = Runtime(
        replace(setup.plan, clients=clients, total=total),
        setup.federation,
        setup.runtime.model,
        setup.runtime.loss,
        setup.runtime.augment,
    )
    site.initial = initial.to(site.model.device)
    return site


def done(site: Runtime, setup: Setup, node: Node, site_store: SiteStore, order: Order) -> Reply:
    try:
        order = replace(order, state=site_store.state(order.state_round))
    except Lost as error:
        return Reply(order.round, order.client).failed("lost", str(error))
    reply = serve(site, order)
    if reply.failure is not None and reply.failure.kind == "exception":
        say(f"round {order.round}: {reply.failure.detail}\n{reply.failure.traceback}")
        kind = reply.failure.detail.partition(":")[0]
        return reply.failed("exception", f"{kind}; the site's log has the rest")  # a message may quote data
    if reply.failure is None and order.work == "personalize":
        if site.plan.private is None:
            with deterministic(0):
                reply.metrics["G"] = client_metrics(site, order, [(1.0, order.vector)], order.integers).get("own", {})
        keep_models(site, setup, node, site_store, order)
    if reply.failure is None and reply.stateful:
        site_store.keep(order.round, reply.state, order.keep_round)
    site_store.note(order.round, reply.notes)
    return reply


def keep_models(site: Runtime, setup: Setup, node: Node, site_store: SiteStore, order: Order) -> None:
    """What the site holds after receiving this model (stage L1), for the site to use."""
    with deterministic(0):
        holder = ClientRound(site, order)
        holder.prepare()
        mixture = [(weight, vector.cpu().clone()) for weight, vector in holder.mixture(holder.start)]
    site_store.models(setup, node.site, order.round, order.vector, holder.integers, mixture)
