"""How much each client counts in the mean."""

from __future__ import annotations

from undrift.weighting.fednolowe import FedNolowe as fednolowe
from undrift.weighting.flood import Flood as flood
from undrift.weighting.size import Size as size
from undrift.weighting.uniform import Uniform as uniform

__all__ = ["fednolowe", "flood", "size", "uniform"]
