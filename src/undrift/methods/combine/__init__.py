"""The axis `combine`: rules that make one vector out of the clients' vectors."""

from __future__ import annotations

from undrift.methods.combine.fedcda import FedCDA as fedcda
from undrift.methods.combine.fedlaw import FedLAW as fedlaw
from undrift.methods.combine.fedma import FedMA as fedma
from undrift.methods.combine.fednova import FedNova as fednova
from undrift.methods.combine.flexlora import FlexLoRA as flexlora
from undrift.methods.combine.flora import FLoRA as flora
from undrift.methods.combine.geomedian import Geomedian as geomedian
from undrift.methods.combine.inco import InCo as inco
from undrift.methods.combine.krum import Krum as krum
from undrift.methods.combine.mean import Mean as mean
from undrift.methods.combine.median import Median as median
from undrift.methods.combine.normbound import Normbound as normbound
from undrift.methods.combine.trimmed import Trimmed as trimmed

__all__ = [
    "fedcda",
    "fedlaw",
    "fedma",
    "fednova",
    "flexlora",
    "flora",
    "geomedian",
    "inco",
    "krum",
    "mean",
    "median",
    "normbound",
    "trimmed",
]
