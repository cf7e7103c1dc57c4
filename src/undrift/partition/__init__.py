"""Who holds what: every way in which the data of clients can differ in labels and in size.

A partition is a frozen dataclass that is called with the labels, the number of clients and a random stream (and, where
the data name them, the `groups`: a client or domain id per sample) and returns one index array per client. Every index
at most once, except for `resample`; retries are bounded; what had to be repaired stands in the result's `record`.
"""

from __future__ import annotations

from undrift.partition._common import Parts as Parts
from undrift.partition._common import apply_matrix as apply_matrix
from undrift.partition._common import matrix as matrix
from undrift.partition.by_domain import ByDomain as by_domain
from undrift.partition.class_counts import ClassCounts as class_counts
from undrift.partition.dirichlet import Dirichlet as dirichlet
from undrift.partition.iid import Iid as iid
from undrift.partition.label_quantity_skew import LabelQuantitySkew as label_quantity_skew
from undrift.partition.label_skew import LabelSkew as label_skew
from undrift.partition.lognormal import Lognormal as lognormal
from undrift.partition.natural import Natural as natural
from undrift.partition.pathological import Pathological as pathological
from undrift.partition.quantity_skew import QuantitySkew as quantity_skew
from undrift.partition.resample import Resample as resample
from undrift.partition.shards import Shards as shards

__all__ = [
    "by_domain",
    "class_counts",
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
]
