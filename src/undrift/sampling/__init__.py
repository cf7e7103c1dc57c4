"""Which samples count, and how much."""

from __future__ import annotations

from undrift.sampling.fedbss import FedBSS as fedbss
from undrift.sampling.flood import Flood as flood
from undrift.sampling.subset import Subset as subset

__all__ = ["fedbss", "flood", "subset"]
