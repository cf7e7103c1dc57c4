"""From many vectors one."""

from __future__ import annotations

from undrift.combine.fednova import FedNova as fednova
from undrift.combine.mean import Mean as mean

__all__ = ["fednova", "mean"]
