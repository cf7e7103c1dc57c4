"""The axis `weighting`: how much each client counts in the mean."""

from __future__ import annotations

from undrift.methods.weighting.aflama import AFlama as aflama
from undrift.methods.weighting.bound import Bound as bound
from undrift.methods.weighting.fedasl import FedASL as fedasl
from undrift.methods.weighting.feddisco import FedDisco as feddisco
from undrift.methods.weighting.fednolowe import FedNolowe as fednolowe
from undrift.methods.weighting.flood import Flood as flood
from undrift.methods.weighting.loranorm import LoRANorm as loranorm
from undrift.methods.weighting.mix import Mix as mix
from undrift.methods.weighting.size import Size as size
from undrift.methods.weighting.uniform import Uniform as uniform

__all__ = ["aflama", "bound", "fedasl", "feddisco", "fednolowe", "flood", "loranorm", "mix", "size", "uniform"]
