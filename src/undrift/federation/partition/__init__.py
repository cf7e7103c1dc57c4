"""Partitions: how the clients' data differ in labels and in size.

A partition is a frozen dataclass. It is called with the labels, the number of clients and a random stream (and the
`groups`, a client or domain id per sample, if the data name them) and returns one index array per client. Every index
occurs at most once, except with `resample`. Retries are bounded. Repairs are noted in the result's `record`.
"""

from __future__ import annotations

from undrift.federation.partition._common import DealtShards as DealtShards
from undrift.federation.partition._common import apply_matrix as apply_matrix
from undrift.federation.partition._common import largest_remainder as largest_remainder
from undrift.federation.partition._common import matrix as matrix
from undrift.federation.partition.by_domain import ByDomain as by_domain
from undrift.federation.partition.class_counts import ClassCounts as class_counts
from undrift.federation.partition.cluster_skew import ClusterSkew as cluster_skew
from undrift.federation.partition.dirichlet import Dirichlet as dirichlet
from undrift.federation.partition.iid import Iid as iid
from undrift.federation.partition.label_quantity_skew import LabelQuantitySkew as label_quantity_skew
from undrift.federation.partition.label_skew import LabelSkew as label_skew
from undrift.federation.partition.lognormal import Lognormal as lognormal
from undrift.federation.partition.natural import Natural as natural
from undrift.federation.partition.pathological import Pathological as pathological
from undrift.federation.partition.quantity_skew import QuantitySkew as quantity_skew
from undrift.federation.partition.resample import Resample as resample
from undrift.federation.partition.shards import Shards as shards
from undrift.federation.partition.target_skew import TargetSkew as target_skew

__all__ = [
    "by_domain",
    "class_counts",
    "cluster_skew",
    "dirichlet",
    "iid",
    "label_quantity_skew",
    "label_skew",
    "lognormal",
    "natural",
    "pathological",
    "quantity_skew",
    "resample",
    "shards",
    "target_skew",
]
