"""How much each client counts in the mean."""

from __future__ import annotations

from undrift.weighting.aflama import AFlama as aflama
from undrift.weighting.bound import Bound as bound
from undrift.weighting.fedasl import FedASL as fedasl
from undrift.weighting.feddisco import FedDisco as feddisco
from undrift.weighting.fednolowe import FedNolowe as fednolowe
from undrift.weighting.flood import Flood as flood
from undrift.weighting.mix import Mix as mix
from undrift.weighting.size import Size as size
from undrift.weighting.uniform import Uniform as uniform

__all__ = ["aflama", "bound", "fedasl", "feddisco", "fednolowe", "flood", "mix", "size", "uniform"]
