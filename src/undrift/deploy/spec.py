"""What the operator decided, the same on all sides: `run.toml` of the app with its table `[deploy]`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest
from undrift.experiment.options import Options, from_keywords
from undrift.experiment.run_toml import part_words, read_toml
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation, Samples
from undrift.federation.from_clients import client_tensors, from_clients, held_back

NAME = "deployment"  # of a federation whose data lie elsewhere


@dataclass(frozen=True)
class Spec:
    """`sites` train and are numbered in this order, whatever nodes Flower sees; `evaluate_only` come after them."""

    table: dict[str, Any]  # options of a run
    parts: tuple[str, ...] | None  # the resolved method; None where it is a user's own and is imported
    sites: tuple[str, ...]
    labels: tuple[str, ...]
    shape: tuple[int, ...]  # of one sample, channels first
    evaluate_only: tuple[str, ...] = ()
    quorum: float | int = 0.5  # of the round's cohort: a share with a decimal point, else a number of sites
    deadline: float = 600.0  # seconds for a round
    wait: float = 120.0  # seconds for the roll call
    norm: float = 100.0  # an update may be this many times as long as the vector that was sent
    test_share: float = 0.2  # of a site's data, where its data.py gives no test part
    where: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        names = [*self.sites, *self.evaluate_only]
        if not self.sites:
            raise BadRequest("a deployment needs at least one site that trains; name them with --sites berlin,oslo")
        for name in names:
            if not name or not name.replace("-", "").replace("_", "").isalnum():
                raise BadRequest(f"a site's name is made of letters, digits, - and _, not {name!r}")
            if names.count(name) > 1:
                raise BadRequest(f"the site {name} is listed twice")
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise BadRequest(f"a deployment needs at least two labels, each once, not {list(self.labels)}")
        if isinstance(self.quorum, float) and not 0 < self.quorum <= 1:
            raise BadRequest(f"quorum is a share with a decimal point (0 < share ≤ 1) or a number, not {self.quorum}")
        if isinstance(self.quorum, int) and not 1 <= self.quorum <= len(self.sites):
            raise BadRequest(
                f"quorum is {self.quorum}; it must lie between 1 and the {len(self.sites)} sites that train"
            )
        for name in ("deadline", "wait", "norm"):
            if not getattr(self, name) > 0:
                raise BadRequest(f"{name} must be a number above 0, not {getattr(self, name)}")

    @property
    def everybody(self) -> tuple[str, ...]:
        return (*self.sites, *self.evaluate_only)

    def number(self, site: str) -> int:
        """The client number of a site: its place in the list."""
        if site not in self.everybody:
            raise BadRequest(f"the site {site!r} is not in this deployment's list: {', '.join(self.everybody)}")
        return self.everybody.index(site)

    def needed(self, cohort: int) -> int:
        """How many of a cohort must answer."""
        share = max(1, int(self.quorum * cohort + 0.5)) if isinstance(self.quorum, float) else self.quorum
        return min(share, cohort)

    @property
    def options(self) -> Options:
        return from_keywords({**self.table, "data": NAME, "engine": "flower", "tolerate": True})

    def setup(self, federation: Federation) -> Setup:
        return prepare(self.options, federation, None if self.parts is None else list(self.parts))

    def words(self) -> dict[str, Any]:
        """The table `[deploy]`."""
        return {
            "sites": list(self.sites), "evaluate_only": list(self.evaluate_only), "labels": list(self.labels),
            "shape": list(self.shape), "quorum": self.quorum, "deadline": self.deadline, "wait": self.wait,
            "norm": self.norm, "test_share": self.test_share,
        }  # fmt: skip


def read(app: Path) -> Spec:
    """The spec of an app's folder (or of a server's run folder)."""
    path = app / "run.toml"
    table = read_toml(path)
    words = tomllib.loads(path.read_text()).get("deploy")
    if words is None:
        raise BadRequest(f"{path} has no table [deploy]; `undrift deploy init` writes one")
    return made(table, words, path)


def made(table: Mapping[str, Any], words: Mapping[str, Any], path: Path) -> Spec:
    known = {name for name in Spec.__dataclass_fields__ if name not in ("table", "parts", "where")}
    if strange := sorted(set(words) - known):
        raise BadRequest(f"{path}: [deploy] has no key {strange[0]}; known: {', '.join(sorted(known))}")
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}
    table = {name: value for name, value in table.items() if name not in ("data", "partition", "clients", "engine")}
    parts = table.pop("parts", None)
    if parts is not None and any(".object:" in part for part in parts):
        parts = None  # a user's own parts: the method is imported by its name
    try:
        return Spec(table=table, parts=None if parts is None else tuple(parts), where=path.parent, **given)
    except TypeError as error:
        raise BadRequest(f"{path}: [deploy] is not complete: {error}") from None


def changed(spec: Spec, config: Mapping[str, Any]) -> Spec:
    """With what was said at the start of a run (`flwr run … -c "deadline=60"`)."""
    asked = {
        name: config[name] for name in ("quorum", "deadline", "wait", "norm") if config.get(name) not in (None, "")
    }
    more = {"rounds": int(config["rounds"])} if config.get("rounds") else {}
    return replace(spec, table={**spec.table, **more}, **asked)


# ---- federations whose data lie elsewhere --------------------------------------------------------------------------


class RemoteClients(Sequence[np.ndarray]):
    """The rows of clients as one side knows them: their numbers everywhere, the rows themselves only at home."""

    def __init__(self, sizes: Sequence[int], site_store: int = -1, rows: int = 0) -> None:
        self.sizes, self.site_store, self.own = np.asarray(sizes, dtype=np.int64), site_store, np.arange(rows)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        return self.own if client == self.site_store else np.empty(0, dtype=np.int64)


def at_server(spec: Spec, sizes: Sequence[int], test: Samples | None = None) -> Federation:
    """What the server knows: how much everybody has, and its own test set, if it has one."""
    rows = (*spec.shape[1:], spec.shape[0]) if len(spec.shape) == 3 else spec.shape
    sample = torch.zeros(2, *rows), torch.zeros(2, dtype=torch.long)  # for the model's dry run
    nothing = sample[0][:0], sample[1][:0]
    slices = RemoteClients([0] * len(sizes))
    return Federation(NAME, sample, test or nothing, RemoteClients(sizes), spec.labels, slices=slices)


def at_site(spec: Spec, site: str, given: Any, labels: Sequence[str]) -> Federation:
    """What a site knows: its own data, under its own number."""
    if tuple(labels) != spec.labels:
        raise BadRequest(
            f"{site} numbers its labels {', '.join(map(str, labels))}, the deployment {', '.join(spec.labels)}; "
            "bring LABELS and y into the deployment's order"
        )
    number = spec.number(site)
    x, y, x_test, y_test = client_tensors(given, site)
    if site in spec.evaluate_only and (y_test is None or not len(y)):  # whatever it has is there to judge
        x, y = (x, y) if x_test is None or y_test is None else (x_test, y_test)
        x_test, y_test = x, y
    x, y, x_test, y_test, _ = held_back((x, y, x_test, y_test), number, spec.test_share, spec.options.federation_seed)
    own = from_clients([(x, y, x_test, y_test)], NAME, spec.test_share, spec.labels, 0, 0.0, who=[site])
    if own.shape != spec.shape:
        raise BadRequest(f"{site} has samples of shape {own.shape}, the deployment's model takes {spec.shape}")
    sizes = [len(own.y) if other == number else 0 for other in range(len(spec.sites))]
    return Federation(
        NAME, (own.x, own.y), (own.test_x, own.test_y), RemoteClients(sizes, number, len(own.y)), spec.labels,
        slices=RemoteClients([0] * len(sizes), number, len(own.test_y)),
    )  # fmt: skip


def method_words(setup: Setup) -> list[str]:
    return [part_words(part) for part in setup.method.parts]
