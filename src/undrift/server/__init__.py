"""From the combined vector the next global one."""

from __future__ import annotations

from undrift.server.adaptive import FedAdagrad as fedadagrad
from undrift.server.adaptive import FedAdam as fedadam
from undrift.server.adaptive import FedYogi as fedyogi
from undrift.server.fedexp import FedExP as fedexp
from undrift.server.fedmr import FedMR as fedmr
from undrift.server.momentum import Momentum as momentum
from undrift.server.replace import Replace as replace

__all__ = ["fedadagrad", "fedadam", "fedexp", "fedmr", "fedyogi", "momentum", "replace"]
