"""What a client minimises."""

from __future__ import annotations

from undrift.objectives.feddecorr import FedDecorr as feddecorr
from undrift.objectives.feddyn import FedDyn as feddyn
from undrift.objectives.fedlc import FedLC as fedlc
from undrift.objectives.fednp import FedNP as fednp
from undrift.objectives.fedprox import FedProx as fedprox
from undrift.objectives.fedrs import FedRS as fedrs
from undrift.objectives.moon import Moon as moon
from undrift.objectives.scaffold import Scaffold as scaffold

__all__ = ["feddecorr", "feddyn", "fedlc", "fednp", "fedprox", "fedrs", "moon", "scaffold"]
