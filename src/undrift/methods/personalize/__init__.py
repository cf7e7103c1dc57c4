"""The axis `personalize`: where a client starts, what else it trains, and which model it uses."""

from __future__ import annotations

from undrift.methods.personalize.apfl import Apfl as apfl
from undrift.methods.personalize.ditto import Ditto as ditto
from undrift.methods.personalize.fedfomo import FedFomo as fedfomo
from undrift.methods.personalize.fedrep import FedRep as fedrep
from undrift.methods.personalize.finetune import Finetune as finetune
from undrift.methods.personalize.fliu import Fliu as fliu
from undrift.methods.personalize.local import Local as local
from undrift.methods.personalize.pfedme import PFedMe as pfedme

__all__ = ["apfl", "ditto", "fedfomo", "fedrep", "finetune", "fliu", "local", "pfedme"]
