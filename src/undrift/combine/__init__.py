"""From many vectors one."""

from __future__ import annotations

from undrift.combine.fedcda import FedCDA as fedcda
from undrift.combine.fedlaw import FedLAW as fedlaw
from undrift.combine.fedma import FedMA as fedma
from undrift.combine.fednova import FedNova as fednova
from undrift.combine.geomedian import Geomedian as geomedian
from undrift.combine.inco import InCo as inco
from undrift.combine.krum import Krum as krum
from undrift.combine.mean import Mean as mean
from undrift.combine.median import Median as median
from undrift.combine.normbound import Normbound as normbound
from undrift.combine.trimmed import Trimmed as trimmed

__all__ = [
    "fedcda", "fedlaw", "fedma", "fednova", "geomedian", "inco", "krum", "mean", "median", "normbound", "trimmed",
]  # fmt: skip
