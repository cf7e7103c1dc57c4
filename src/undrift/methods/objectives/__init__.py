"""The axis `objective`: what a client minimises in local training."""

from __future__ import annotations

from undrift.methods.objectives.feddecorr import FedDecorr as feddecorr
from undrift.methods.objectives.feddyn import FedDyn as feddyn
from undrift.methods.objectives.fedlc import FedLC as fedlc
from undrift.methods.objectives.fednp import FedNP as fednp
from undrift.methods.objectives.fedntd import FedNTD as fedntd
from undrift.methods.objectives.fedproto import FedProto as fedproto
from undrift.methods.objectives.fedprox import FedProx as fedprox
from undrift.methods.objectives.fedrs import FedRS as fedrs
from undrift.methods.objectives.fedsam import FedSAM as fedsam
from undrift.methods.objectives.moon import Moon as moon
from undrift.methods.objectives.scaffold import Scaffold as scaffold

__all__ = [
    "feddecorr", "feddyn", "fedlc", "fednp", "fedntd", "fedproto", "fedprox", "fedrs", "fedsam", "moon", "scaffold",
]  # fmt: skip
