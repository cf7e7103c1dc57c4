"""What a client minimises."""

from __future__ import annotations

from undrift.objectives.feddyn import FedDyn as feddyn
from undrift.objectives.fedlc import FedLC as fedlc
from undrift.objectives.fedprox import FedProx as fedprox
from undrift.objectives.scaffold import Scaffold as scaffold

__all__ = ["feddyn", "fedlc", "fedprox", "scaffold"]
