"""`ud.federate`: a labelled data set dealt to clients."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.federation import images
from undrift.federation.federation import NOBODY, Federation, unseen_last


def spelt(value: Any, home: Any) -> Any:
    """Objects that their module exports, as the text that makes them again; anything else as it is."""
    from undrift.core import text

    ours = {getattr(home, name) for name in home.__all__}
    if isinstance(value, (list, tuple)):
        each = [spelt(item, home) for item in value]
        return "+".join(each) if all(isinstance(item, str) for item in each) else value
    return text.spell(value) if type(value) in ours else value


def federate(
    data: Any = "digits",
    partition: Any = "dirichlet(0.3)",
    clients: int | None = None,
    *,
    noise: Any = None,
    domains: Any = None,
    validation: float = 0.0,
    proxy: float = 0.0,
    unseen: float = 0.0,
    seed: int = 0,
    test_share: float = 0.2,
) -> Federation:
    """Deal a labelled data set to clients. `data` is a name, a path or a `DataSet`; `partition`, `noise` and `domains` are
    objects or their text, the last two also lists. Without `clients` there are as many as `natural` or `by_domain` find
    in the data, else 20. `test_share` of the samples is held out where the data have no test part."""
    from undrift import data as data_sets
    from undrift.core import text
    from undrift.data.split import with_test_part
    from undrift.federation import partition as partitions
    from undrift.federation.environment import domains as transforms
    from undrift.federation.environment import feature_skew as looks
    from undrift.federation.environment import noise as noises

    data = str(data) if isinstance(data, os.PathLike) else data
    spec = {"data": data, "partition": spelt(partition, partitions), "clients": clients, "noise": spelt(noise, noises),
            "domains": spelt(domains, transforms), "validation": validation, "proxy": proxy, "unseen": unseen,
            "data_seed": seed}  # fmt: skip
    if isinstance(partition, str):
        partition = text.build("partition", partition, {name: getattr(partitions, name) for name in partitions.__all__})
    wrong = text.several("noise", noise, {name: getattr(noises, name) for name in noises.__all__})
    for name, share in (("validation", validation), ("proxy", proxy)):
        if not 0 <= share < 1:
            raise BadRequest(f"{name} is a share of the training data, 0 ≤ {name} < 1, not {share}")
    if clients is not None and (not isinstance(clients, int) or clients < 1):
        raise BadRequest(f"a federation needs at least one client, not {clients}")
    source = data_sets.load(data) if isinstance(data, str) else data
    record: dict[str, Any] = {}
    if not len(source.y_test):
        source, record["test_share"] = with_test_part(source, test_share, seed), test_share
        spec = spec if test_share == 0.2 else {"data": source}  # no option says it, so text cannot repeat it
    y = np.asarray(source.y_train, dtype=np.int64)
    follows = getattr(partition, "follows_groups", "")
    groups, test_groups = groups_of(source, follows)
    skew = looks.Skew(looks.read(domains), source, seed) if domains else None
    if skew is not None and follows == "domain":
        groups, test_groups = skew.train, skew.test
    clients = clients or (20 if groups is None else len(np.unique(groups)))
    spec["clients"] = clients
    rows, proxy_rows = np.arange(len(y)), NOBODY
    if proxy:
        order = numpy_stream(seed, "proxy").permutation(len(y))
        held = max(1, round(proxy * len(y)))
        rows, proxy_rows = np.sort(order[held:]), np.sort(order[:held])
    noisy = y.copy()
    noisy[rows] = noises.before(wrong, y[rows], len(source.classes), seed)
    dealt = partition(noisy[rows], clients, numpy_stream(seed, "partition"), None if groups is None else groups[rows])
    record |= getattr(dealt, "record", {})
    lazy = not isinstance(dealt, list)
    parts = dealt if lazy and not len(proxy_rows) else [rows[part] for part in dealt]
    if lazy and any(one.when == "after" and not hasattr(one, "permutations") for one in wrong):
        raise BadRequest("noise after the partition needs one that deals each sample once; use when=before")
    noisy, permutations = noises.after(wrong, noisy, parts, len(source.classes), seed)
    slices = None
    if not lazy:
        if groups is not None and test_groups is not None:
            slices = [np.flatnonzero(test_groups == groups[part[0]]) for part in parts]
        else:
            matrix = partitions.matrix(parts, y, len(source.classes))
            slices = partitions.apply_matrix(matrix, source.y_test, numpy_stream(seed, "slices"))
    x, test_x, names, test_domain = source.x_train, source.x_test, source.domains, source.domain_test
    if skew is not None:
        x, test_x, test_domain, record["domain"] = skew.shown(parts, slices)
        names = skew.names
    places, newcomers = unseen_last(unseen, len(parts), numpy_stream(seed, "unseen"))
    if newcomers and not lazy:  # clients of a lazy deal differ by their number alone: the last ones are as good as any
        parts = [parts[k] for k in places]
        slices = [slices[k] for k in places] if slices is not None else None
        permutations = {new: permutations[old] for new, old in enumerate(places) if old in permutations}
        record["unseen"] = list(places[-newcomers:])
        if "domain" in record:
            record["domain"] = [record["domain"][k] for k in places]
    named = source.name if not isinstance(data, str) else data
    return Federation(
        named,
        (images.stored(source.standardised(x)), torch.from_numpy(noisy)),
        (images.stored(source.standardised(test_x)), torch.from_numpy(np.asarray(source.y_test, dtype=np.int64))),
        parts, source.classes, slices, seed, validation, proxy_rows, torch.from_numpy(y), permutations,
        spec if all(value is None or isinstance(value, (str, int, float)) for value in spec.values()) else None, record,
        (source.mean, source.std),
        {} if test_domain is None else {name: np.flatnonzero(test_domain == i) for i, name in enumerate(names)},
        newcomers,
    )  # fmt: skip


def groups_of(source: Any, follows: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(train, test) ids of the groups a partition follows: the data's clients for `natural` (their domains, where no
    client is named), their domains for `by_domain`."""
    if follows == "client" and source.client_train is not None:
        return source.client_train, source.client_test
    return (source.domain_train, source.domain_test) if follows else (None, None)
