"""The operator's decisions: the app's `run.toml` with its table `[deploy]`. The server and all sites read the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen

from undrift import tasks
from undrift.contract.task import Task
from undrift.core.errors import BadRequest
from undrift.core.samples import Ragged
from undrift.core.schema import Count, Name, Positive, check, checked, hints_of, setting
from undrift.core.words import shown
from undrift.deploy.policy import Refused
from undrift.experiment import kept_code
from undrift.experiment.options import Options, from_keywords
from undrift.experiment.run_toml import part_text, read_run
from undrift.experiment.setup import Setup, prepare
from undrift.federation import images
from undrift.federation.federation import Federation, Samples
from undrift.federation.from_clients import client_tensors, from_clients, held_back

NAME = "deployment"  # of the federation
MAX_SAMPLES = 2**40  # a site may have, if the operator gives no limit: the sum over all sites stays far below 2**63


WEIGHT_CAP = 0.5  # of a site in a round, if the operator gives no other: no site outvotes all the others together


@dataclass(frozen=True)
class DeployTable:
    """The table `[deploy]` of a deployment's run.toml."""

    sites: list[Name] = setting(..., "the sites that train; they are numbered in this order")
    shape: Annotated[list[Count], MinLen(1)] = setting(..., "shape of one sample, channels first")
    labels: list[str] = setting([], "names of the classes 0, 1, 2, …; of a task without classes not needed")
    evaluate_only: list[Name] = setting([], "sites that evaluate and never train")
    quorum: Annotated[float, Gt(0), Le(1)] | Count = setting(
        0.5, "how many of a round's sites must reply: a share with a decimal point, or a number"
    )
    deadline: Positive = setting(600.0, "seconds for a round")
    wait: Positive = setting(120.0, "seconds for the handshake")
    norm: Positive = setting(100.0, "largest norm of an update, in norms of the vector that was sent")
    relative_norm: Annotated[float, Gt(1)] = setting(
        10.0, "and at most this many times the median of the other sites' updates in the round"
    )
    test_share: Annotated[float, Gt(0), Lt(1)] = setting(0.2, "of a site's data, if its data.py returns no test part")
    max_samples: dict[str, Annotated[int, Ge(1), Le(MAX_SAMPLES)]] = setting(
        {}, "by site: the most training samples that it may claim"
    )
    unnamed_nodes: bool = setting(
        False, "whether a node whose key has no registered name may speak for the site it claims"
    )


DEPLOY_HINTS = hints_of(DeployTable)


@dataclass(frozen=True)
class Spec:
    """`sites` train and are numbered in this order, whatever Flower's node ids are. `evaluate_only` come after them."""

    table: dict[str, Any]  # options of a run
    parts: tuple[str, ...] | None  # the resolved method; None if it has a user's own parts and is imported by name
    sites: tuple[str, ...]
    labels: tuple[str, ...]
    shape: tuple[int, ...]  # of one sample, channels first
    evaluate_only: tuple[str, ...] = ()
    quorum: float | int = 0.5  # of the round's cohort: a share (float) or a number of sites (int)
    deadline: float = 600.0  # seconds for a round
    wait: float = 120.0  # seconds for the handshake
    norm: float = 100.0  # an update's norm is at most this many times the norm of the vector that was sent
    relative_norm: float = 10.0  # and at most this many times the median of the other sites' updates in the round
    test_share: float = 0.2  # of a site's data, if its data.py returns no test part
    max_samples: Mapping[str, int] = field(default_factory=dict)  # by site: most training samples it may claim
    code: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the files of the operator's own code
    base: str | None = None  # SHA-256 of the frozen parameters that the app was made with
    unnamed_nodes: bool = False  # whether a node whose key has no registered name may speak for the site it claims
    where: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        names = [*self.sites, *self.evaluate_only]
        if not self.sites:
            raise BadRequest("a deployment needs at least one site that trains; name them with --sites berlin,oslo")
        for name in names:
            if not name or not name.replace("-", "").replace("_", "").isalnum():
                raise BadRequest(f"a site's name must be letters, digits, - and _, not {shown(name)}")
            if names.count(name) > 1:
                raise BadRequest(f"the site {name} is listed twice")
        if not self.labels and self.table.get("task") is not None:
            object.__setattr__(self, "labels", numbered_outputs(self.table["task"]))
        least = 2 if self.table.get("task") is None else 1
        if len(self.labels) < least or len(set(self.labels)) < len(self.labels):
            raise BadRequest(f"a deployment needs at least two labels, each once, not {shown(list(self.labels))}")
        if isinstance(self.quorum, int) and not 1 <= self.quorum <= len(self.sites):
            raise BadRequest(
                f"quorum is {self.quorum}; it must lie between 1 and the {len(self.sites)} sites that train"
            )
        check(DeployTable, self.deploy_table(), "[deploy]")
        for site in self.max_samples:
            if site not in names:
                raise BadRequest(f"max_samples names {site!r}, which is not in the list; known: {', '.join(names)}")

    @property
    def task(self) -> Task:
        """What the network predicts."""
        return tasks.read(self.table.get("task")).with_outputs(len(self.labels))

    @property
    def all_sites(self) -> tuple[str, ...]:
        """By client number: the sites that train, then those that only evaluate."""
        return (*self.sites, *self.evaluate_only)

    def number(self, site: str) -> int:
        """The client number of a site: its position in the list."""
        if site not in self.all_sites:
            raise BadRequest(f"the site {site!r} is not in this deployment's list; known: {', '.join(self.all_sites)}")
        return self.all_sites.index(site)

    def most_samples(self, site: str) -> int:
        """The most training samples that a site may claim: more samples are more weight."""
        return self.max_samples.get(site, MAX_SAMPLES)

    def needed(self, cohort: int) -> int:
        """How many sites of a cohort must reply."""
        share = max(1, int(self.quorum * cohort + 0.5)) if isinstance(self.quorum, float) else self.quorum
        return min(share, cohort)

    @property
    def options(self) -> Options:
        return from_keywords(
            {"weight_cap": WEIGHT_CAP, **self.table, "data": NAME, "engine": "flower", "tolerate": True}
        )

    def setup(self, federation: Federation) -> Setup:
        self.check_code()
        return prepare(self.options, federation, None if self.parts is None else list(self.parts))

    def check_code(self) -> None:
        """Let Python find the app's own code, and refuse other files under its names."""
        if self.code and str(self.where.resolve()) not in sys.path:
            sys.path.insert(0, str(self.where.resolve()))
        for name, file in kept_code.changed({"code": self.code}):
            raise BadRequest(
                f"{file} is not the {name} that this deployment was made with; undo the edit, or make the app again with "
                "`undrift deploy init` and give it to all sites"
            )

    def deploy_table(self) -> dict[str, Any]:
        """The table `[deploy]`."""
        return {
            "sites": list(self.sites), "evaluate_only": list(self.evaluate_only), "labels": list(self.labels),
            "shape": list(self.shape), "quorum": self.quorum, "deadline": self.deadline, "wait": self.wait,
            "norm": self.norm, "relative_norm": self.relative_norm, "test_share": self.test_share,
            "unnamed_nodes": self.unnamed_nodes,
            **({"max_samples": self.max_samples} if self.max_samples else {}),
        }  # fmt: skip


def numbered_outputs(task: Any) -> tuple[str, ...]:
    """The names of a network's outputs where the operator gives none: numbers, as many as the task has."""
    found = tasks.read(task)
    if not found.outputs and "class_logits" in found.provides:
        raise BadRequest(
            f"the number of classes of {found.name} is missing; give --labels, or say it: {found.name}(outputs=86)"
        )
    return tuple(str(number) for number in range(found.outputs or 1))


def read(app: Path) -> Spec:
    """The spec of an app's folder (or of a server's run folder)."""
    path = app / "run.toml"
    if app.is_dir() and not path.is_file():
        raise BadRequest(
            f"the folder {shown(str(app))} has no run.toml; give an app's folder, as `undrift deploy init` makes it"
        )
    written = read_run(path)
    if written.deploy is None:
        raise BadRequest(f"{path} has no table [deploy]; `undrift deploy init` writes one")
    return replace(
        from_tables(written.options, written.deploy, path),
        code=written.about.get("code", {}),
        base=written.about.get("base"),
    )


def from_tables(table: Mapping[str, Any], deploy_table: Mapping[str, Any], path: Path) -> Spec:
    """A spec from the options of a run and the table `[deploy]`; `path` is the file that errors name."""
    values = check(DeployTable, deploy_table, f"{path}: [deploy]")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    table = {name: value for name, value in table.items() if name not in ("data", "partition", "clients", "engine")}
    values.setdefault("labels", ())
    parts = table.pop("parts", None)
    if parts is not None and any(".object:" in part for part in parts):
        parts = None  # a user's own parts: the method is imported by its name
    return Spec(table=table, parts=None if parts is None else tuple(parts), where=path.parent, **values)


def with_overrides(spec: Spec, config: Mapping[str, Any]) -> Spec:
    """The spec with the values given at the start of a run (`flwr run … -c "deadline=60"`)."""
    given = {name: value for name, value in config.items() if value not in (None, "")}
    overrides = {
        name: checked(DEPLOY_HINTS[name], name, given[name])
        for name in ("quorum", "deadline", "wait", "norm", "relative_norm")
        if name in given
    }
    rounds = {"rounds": checked(Count, "rounds", given["rounds"])} if "rounds" in given else {}
    return replace(spec, table={**spec.table, **rounds}, **overrides)


# ---- the federation as the server and as a site see it -------------------------------------------------------------


class RemoteClients(Sequence[np.ndarray]):
    """Row indices by client. All sizes are known; the rows exist only for `own_client` (-1: for none)."""

    def __init__(self, sizes: Sequence[int], own_client: int = -1, rows: int = 0) -> None:
        self.sizes, self.own_client, self.own_rows = np.asarray(sizes, dtype=np.int64), own_client, np.arange(rows)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        return self.own_rows if client == self.own_client else np.empty(0, dtype=np.int64)


def server_federation(spec: Spec, sizes: Sequence[int], test: Samples | None = None) -> Federation:
    """The federation at the server: the clients' sample counts, and the server's own test set if it has one."""
    sample = example_of(spec.task, spec.shape)
    empty = sample[0][:0], sample[1][:0]
    slices = RemoteClients([0] * len(sizes))
    return Federation(
        NAME,
        sample,
        test or empty,
        RemoteClients(sizes),
        spec.labels,
        slices=slices,
        names=spec.all_sites,
        task=spec.task,
    )


def example_of(task: Task, shape: tuple[int, ...]) -> Samples:
    """Two samples to try the model on, as a federation stores them."""
    x, y = task.example(shape)
    return images.stored(x), y


def site_federation(spec: Spec, site: str, data: Any, labels: Sequence[str] | None) -> Federation:
    """The federation at a site: its own data, under its own client number."""
    task = spec.task
    if labels is None and "labels" in task.provides:
        raise Refused("data", f"{site}'s data.py has no list LABELS; add one with the names of the classes 0, 1, 2, …")
    if labels is not None and tuple(labels) != spec.labels:
        raise Refused(
            "labels",
            f"{site}'s labels are {', '.join(map(str, labels))}, the deployment's {', '.join(spec.labels)}; "
            "bring LABELS and y into the deployment's order",
        )
    number = spec.number(site)
    x, y, x_test, y_test = client_tensors(data, site, task)
    if site in spec.evaluate_only and (y_test is None or not len(y)):  # all its data are used to evaluate
        x, y = (x, y) if x_test is None or y_test is None else (x_test, y_test)
        x_test, y_test = x, y
    x, y, x_test, y_test, _ = held_back((x, y, x_test, y_test), number, spec.test_share, spec.options.federation_seed)
    own = from_clients([(x, y, x_test, y_test)], NAME, spec.test_share, spec.labels, 0, 0.0, who=[site], task=task)
    first = 1 if isinstance(own.x, Ragged) else 0  # sequences may have any length
    if own.shape[first:] != spec.shape[first:]:
        raise Refused(
            "shape",
            f"{site} has samples of shape {own.shape}, the deployment's model takes {spec.shape}; give such samples, or make a "
            "deployment for these",
        )
    sizes = [len(own.y) if other == number else 0 for other in range(len(spec.sites))]
    clients = RemoteClients(sizes, number, len(own.y))
    slices = RemoteClients([0] * len(sizes), number, len(own.test_y))
    return Federation(NAME, (own.x, own.y), (own.test_x, own.test_y), clients, spec.labels, slices=slices, task=task)


def resolved_parts(setup: Setup) -> list[str]:
    """The method's parts with their parameters, as text."""
    return [part_text(part) for part in setup.method.parts]
