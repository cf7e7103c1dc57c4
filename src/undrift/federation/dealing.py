"""`ud.federate`: deal a labelled data set to clients, one step after the other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from undrift import tasks
from undrift.contract.task import Task
from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.core.user_code import user_function
from undrift.federation import checks, images
from undrift.federation.checks import check_given
from undrift.federation.federation import NO_ROWS, Federation, unseen_last

CLIENTS = 20
TEST_SHARE = 0.2

Plain = str | int | float | None  # what run.toml can hold
Groups = tuple[np.ndarray | None, np.ndarray | None]  # group ids of the training and the test samples
Inputs = tuple[Any, Any, dict[str, np.ndarray]]


@dataclass
class Deal:
    """The targets, the server's proxy rows, and every client's training rows, test slice and label permutation."""

    clean: Any  # targets before noise: labels (an array), or what the task takes
    noisy: Any
    proxy_rows: np.ndarray
    shards: Sequence[np.ndarray]
    lazy: bool  # rows are computed on demand (`resample`), and clients may share samples
    slices: list[np.ndarray] | None = None  # None: drawn on demand
    permutations: dict[int, np.ndarray] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    names: Sequence[str] = ()  # of the clients, where the data name them


def federate(
    data: Any = "digits",
    partition: Any = None,
    clients: int | None = None,
    *,
    noise: Any = None,
    domains: Any = None,
    validation: float = 0.0,
    proxy: float = 0.0,
    unseen: float = 0.0,
    seed: int = 0,
    test_share: float = TEST_SHARE,
    standardise: str | None = None,
    task: Any = None,
    target: str | None = None,
    client_column: str | None = None,
) -> Federation:
    """Deal a data set to clients. `data` is a name, a path or a `DataSet`. `partition`, `noise` and `domains`
    are objects or their text, the last two also lists. Without `partition` it is dirichlet(0.3), or natural with a
    `client_column`; for data without classes natural if they name clients, else iid. Without `clients` there are as many as
    `natural` or `by_domain` find in the data, else 20. `test_share` of the samples is held out if the data have no test
    part. `standardise` gives other constants than the data set's, "mean/deviation". `task` is a task or its text; without
    one it is that of the data. `target` and `client_column` name columns of a .csv: what is predicted, and the client of
    every row."""
    shares = {"validation": validation, "proxy": proxy, "unseen": unseen, "test_share": test_share}
    check_given(data, partition, clients, seed, shares)
    data, seed = str(data) if isinstance(data, os.PathLike) else data, int(seed)
    clients = None if clients is None else int(clients)
    columns = {"target": target, "client_column": client_column}
    source, record = load_data(data, test_share, seed, standardise, task, columns)
    kind = source.as_task if task is None else asked_task(source, task)
    partition = default_partition(source, kind, client_column) if partition is None else partition
    spec = as_texts(data, partition, clients, noise, domains) | columns
    spec |= {"validation": validation, "proxy": proxy, "unseen": unseen, "data_seed": seed, "task": task_text(task)}
    rule, noises = read_rules(partition, noise)
    spec |= {} if standardise is None else {"standardise": standardise}
    if record and test_share != TEST_SHARE:
        spec["data"] = source  # no option sets test_share, so text cannot repeat this federation
    skew = read_domains(domains, source, seed)
    groups = groups_of(source, getattr(rule, "follows_groups", ""), skew)
    spec["clients"] = clients = clients or (CLIENTS if groups[0] is None else len(np.unique(groups[0])))
    deal = deal_samples(source, rule, noises, clients, groups, proxy, seed, kind)
    deal.record = record | deal.record
    deal.names = client_names(deal, groups[0], source, skew)
    inputs = inputs_of(source, skew, deal)
    deal, newcomers = hold_out_clients(deal, unseen, seed)
    return build(data if isinstance(data, str) else source.name, source, deal, inputs, spec, newcomers, kind)


# ---- reading the arguments -----------------------------------------------------------------------------------


def as_texts(data: Any, partition: Any, clients: int | None, noise: Any, domains: Any) -> dict[str, Any]:
    """The arguments as text that builds the same federation again. Objects of the user's own classes stay objects."""
    from undrift.data.catalogue import full_path
    from undrift.federation import partition as partitions
    from undrift.federation.environment import domains as transforms
    from undrift.federation.environment import noise as noises

    texts = {"data": full_path(data), "partition": as_text(partition, partitions), "clients": clients}
    return texts | {"noise": as_text(noise, noises), "domains": as_text(domains, transforms)}


def as_text(value: Any, module: Any) -> Any:
    """An object (or a list of objects) of a class that `module` exports, as its text. Any other value unchanged."""
    from undrift.core import text

    exported = {getattr(module, name) for name in module.__all__}
    if isinstance(value, (list, tuple)):
        texts = [as_text(item, module) for item in value]
        return "+".join(texts) if all(isinstance(item, str) for item in texts) else value
    return text.spell(value) if type(value) in exported else value


def task_text(task: Any) -> Any:
    """A shipped task as its text. Any other value unchanged."""
    shipped = isinstance(task, Task) and type(task).__module__.startswith("undrift.")
    return task.spelled if shipped else task


def read_rules(partition: Any, noise: Any) -> tuple[Any, list[Any]]:
    """The partition and the list of noises as objects."""
    from undrift.core import text
    from undrift.federation import partition as partitions
    from undrift.federation.environment import noise as noises

    if isinstance(partition, str):
        call = text.parse(partition)
        known = {name: getattr(partitions, name) for name in partitions.__all__}
        partition = user_function("partition", call) if ":" in call.name else text.build("partition", call, known)
    items = text.several("noise", noise, {name: getattr(noises, name) for name in noises.__all__})
    checks.check_noise(items)
    return partition, items


def asked_task(source: Any, task: Any) -> Task:
    """Another task than that of the data; refused if their targets are none of it."""
    kind = tasks.read(task).with_outputs(len(source.classes)).completed(source.as_task)
    for x, y in ((source.x_train, source.y_train), (source.x_test, source.y_test)):
        if len(y):
            kind.in_range(kind.targets(x, samples.of(y), source.name), source.name)
    return kind


def default_partition(source: Any, task: Task, client_column: str | None) -> str:
    """The partition where none is named."""
    if client_column is None and "labels" in task.provides:
        return "dirichlet(0.3)"
    return "natural" if source.client_train is not None else "iid"


def load_data(
    data: Any, test_share: float, seed: int, standardise: Any, task: Any, columns: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The data set, and the record of a test part that had to be held out."""
    from undrift import data as data_sets
    from undrift.data.dataset import with_constants
    from undrift.data.split import with_test_part

    source = data_sets.load(data, task=task, **columns) if isinstance(data, str) else data
    if standardise is not None:
        source = with_constants(source, standardise)
    if len(source.y_test):
        return source, {}
    return with_test_part(source, test_share, seed), {"test_share": test_share}


def read_domains(domains: Any, source: Any, seed: int) -> Any:
    """The synthetic domains as a `FeatureSkew`, or None."""
    from undrift.federation.environment import feature_skew

    return feature_skew.FeatureSkew(feature_skew.read(domains), source, seed) if domains else None


def groups_of(source: Any, follows: str, skew: Any) -> Groups:
    """(training, test) ids of the groups a partition follows. `natural` follows the data's clients, or their domains if
    no client is named; `by_domain` follows the domains, which are the synthetic ones if there are any."""
    if skew is not None and follows == "domain":
        return skew.train, skew.test
    if follows == "client" and source.client_train is not None:
        return source.client_train, source.client_test
    return (source.domain_train, source.domain_test) if follows else (None, None)


# ---- dealing -------------------------------------------------------------------------------------------------


def deal_samples(
    source: Any, rule: Any, noises: list[Any], clients: int, groups: Groups, proxy: float, seed: int, task: Task
) -> Deal:
    """Proxy set, noise before the partition, partition, noise after it, test slices."""
    from undrift.federation.environment import noise

    if "labels" not in task.provides:
        return deal_without_labels(source, rule, noises, clients, groups, proxy, seed, task)
    classes, clean = len(source.classes), np.asarray(source.y_train, dtype=np.int64)
    rows, proxy_rows = hold_out_proxy(len(clean), proxy, seed)
    checks.refuse_noises(noises, task)
    noisy = clean.copy()
    noisy[rows] = noise.before(noises, clean[rows], classes, seed)  # the proxy set stays clean
    group_ids = None if groups[0] is None else groups[0][rows]
    made = strata(rule, source, noisy, task, seed)
    seen = noisy if made is None else made[0]
    dealt = checks.deal(rule, seen[rows], clients, numpy_stream(seed, "partition"), group_ids)
    lazy = not isinstance(dealt, list)
    shards = dealt if lazy and not len(proxy_rows) else [rows[shard] for shard in dealt]
    if lazy and any(item.when == "after" and not hasattr(item, "permutations") for item in noises):
        raise BadRequest("noise after the partition needs one that deals each sample once; use when=before")
    noisy, permutations = noise.after(noises, noisy, shards, classes, seed)
    train, test, kinds = (clean, source.y_test, classes) if made is None else (*made, int(made[0].max()) + 1)
    slices = None if lazy else test_slices(shards, train, test, kinds, groups, seed)
    record = dict(getattr(dealt, "record", {}))
    return Deal(clean, noisy, proxy_rows, shards, lazy, slices, permutations, record)


def deal_without_labels(
    source: Any, rule: Any, noises: list[Any], clients: int, groups: Groups, proxy: float, seed: int, task: Task
) -> Deal:
    """The same for data without classes: a partition sees the strata that it makes, or one class for all samples."""
    from undrift.federation.environment import noise

    clean = task.targets(source.x_train, samples.of(source.y_train), source.name)
    rows, proxy_rows = hold_out_proxy(len(clean), proxy, seed)
    checks.refuse_labels(rule, task)
    checks.refuse_noises(noises, task)
    noisy = samples.put(clean, rows, noise.before(noises, clean[rows], task.outputs, seed)) if noises else clean
    group_ids = None if groups[0] is None else groups[0][rows]
    none = tuple(np.zeros(len(one), dtype=np.int64) for one in (clean, source.y_test))
    train, test = strata(rule, source, noisy, task, seed) or none
    dealt = checks.deal(rule, train[rows], clients, numpy_stream(seed, "partition"), group_ids)
    lazy = not isinstance(dealt, list)
    shards = dealt if lazy and not len(proxy_rows) else [rows[shard] for shard in dealt]
    if lazy and any(item.when == "after" for item in noises):
        raise BadRequest("noise after the partition needs one that deals each sample once; use when=before")
    noisy, _ = noise.after(noises, noisy, shards, task.outputs, seed)
    slices = None if lazy else test_slices(shards, train, test, int(train.max()) + 1, groups, seed)
    return Deal(clean, noisy, proxy_rows, shards, lazy, slices, {}, dict(getattr(dealt, "record", {})))


def strata(rule: Any, source: Any, y: Any, task: Task, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The kinds of samples that a partition makes of inputs or targets (`target_skew`, `cluster_skew`), of the training and
    the test samples. None if it deals by classes."""
    if not hasattr(rule, "strata"):
        return None
    x, test_x = source.standardised(source.x_train), source.standardised(source.x_test)
    test_y = task.targets(source.x_test, samples.of(source.y_test), source.name)
    made: tuple[np.ndarray, np.ndarray] = rule.strata((x, y), (test_x, test_y), task, numpy_stream(seed, "strata"))
    return made


def hold_out_proxy(samples: int, proxy: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows for the clients, rows of the server's proxy set)."""
    if not proxy:
        return np.arange(samples), NO_ROWS
    order = numpy_stream(seed, "proxy").permutation(samples)
    held = max(1, round(proxy * samples))
    return np.sort(order[held:]), np.sort(order[:held])


def test_slices(
    shards: Sequence[np.ndarray], clean: np.ndarray, test: np.ndarray, classes: int, groups: Groups, seed: int
) -> list[np.ndarray]:
    """Every client's test rows: its group's test part, else test samples with the label shares of its training rows."""
    from undrift.federation import partition as partitions

    train_groups, test_groups = groups
    if train_groups is not None and test_groups is not None:
        return [np.flatnonzero(test_groups == train_groups[shard[0]]) for shard in shards]
    matrix = partitions.matrix(shards, clean, classes)
    return partitions.apply_matrix(matrix, test, numpy_stream(seed, "slices"))


def inputs_of(source: Any, skew: Any, deal: Deal) -> Inputs:
    """(training inputs, test inputs, test rows by domain), with feature skew each client's own transform of them."""
    x, test_x, names, domain = source.x_train, source.x_test, source.domains, source.domain_test
    if skew is not None:
        x, test_x, domain, deal.record["domain"] = skew.transformed(deal.shards, deal.slices)
        names = skew.names
    by_domain = {} if domain is None else {name: np.flatnonzero(domain == i) for i, name in enumerate(names)}
    return images.stored(source.standardised(x)), images.stored(source.standardised(test_x)), by_domain


def hold_out_clients(deal: Deal, unseen: float, seed: int) -> tuple[Deal, int]:
    """(the deal with the unseen clients last, how many they are)."""
    order, newcomers = unseen_last(unseen, len(deal.shards), numpy_stream(seed, "unseen"))
    if not newcomers or deal.lazy:  # clients of a lazy deal differ by their number alone: the last ones are unseen
        return deal, newcomers
    record = deal.record | {"unseen": list(order[-newcomers:])}
    names = [deal.names[client] for client in order] if deal.names else ()
    if "domain" in record:
        record["domain"] = [record["domain"][client] for client in order]
    return replace(
        deal,
        shards=[deal.shards[client] for client in order],
        slices=None if deal.slices is None else [deal.slices[client] for client in order],
        permutations={new: deal.permutations[old] for new, old in enumerate(order) if old in deal.permutations},
        record=record,
        names=names,
    ), newcomers


def client_names(deal: Deal, groups: np.ndarray | None, source: Any, skew: Any) -> Sequence[str]:
    """The names of the clients or domains whose samples the clients have, if each client has those of one."""
    if groups is None or deal.lazy:
        return ()
    known = source.clients if groups is source.client_train else skew.names if skew is not None else source.domains
    owners = [np.unique(groups[shard]) for shard in deal.shards]
    numbers = [int(owner[0]) for owner in owners if len(owner) == 1]
    return [known[number] for number in numbers] if len(set(numbers)) == len(deal.shards) else ()


def build(
    name: str, source: Any, deal: Deal, inputs: Inputs, spec: dict[str, Any], newcomers: int, task: Task
) -> Federation:
    """The federation. Its spec is None if an object of the user's own is among the arguments."""
    from undrift.data.own import OWN

    x, test_x, test_domains = inputs
    return Federation(
        name,
        train=(x, tensors(deal.noisy)),
        test=(test_x, task.targets(source.x_test, samples.of(source.y_test), source.name)),
        shards=deal.shards,
        labels=source.classes,
        slices=deal.slices,
        seed=spec["data_seed"],
        validation=spec["validation"],
        proxy=deal.proxy_rows,
        clean=tensors(deal.clean),
        permutations=deal.permutations,
        spec=spec if all(isinstance(value, Plain) for value in spec.values()) else None,
        record=deal.record,
        scale=(source.mean, source.std) if source.mean else None,
        domains=test_domains,
        unseen=newcomers,
        names=deal.names,
        knows_clean=source.licence != OWN,
        task=task,
    )


def tensors(targets: Any) -> Any:
    return torch.from_numpy(targets) if isinstance(targets, np.ndarray) else targets
