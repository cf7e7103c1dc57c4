"""The axis `sampling`: which samples a client trains on, and with which weight."""

from __future__ import annotations

from undrift.methods.sampling.dpsgd import DpSgd as dpsgd
from undrift.methods.sampling.fedbss import FedBSS as fedbss
from undrift.methods.sampling.flood import Flood as flood
from undrift.methods.sampling.subset import Subset as subset

__all__ = ["dpsgd", "fedbss", "flood", "subset"]
