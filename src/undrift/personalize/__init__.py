"""Where a client starts, what it trains beside, what it holds."""

from __future__ import annotations

from undrift.personalize.apfl import Apfl as apfl
from undrift.personalize.ditto import Ditto as ditto
from undrift.personalize.fedfomo import FedFomo as fedfomo
from undrift.personalize.fedrep import FedRep as fedrep
from undrift.personalize.finetune import Finetune as finetune
from undrift.personalize.fliu import Fliu as fliu
from undrift.personalize.local import Local as local

__all__ = ["apfl", "ditto", "fedfomo", "fedrep", "finetune", "fliu", "local"]
