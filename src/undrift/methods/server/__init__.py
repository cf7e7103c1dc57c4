"""The axis `server`: how the server makes the next global vector out of the combined one."""

from __future__ import annotations

from undrift.methods.server.adaptive import FedAdagrad as fedadagrad
from undrift.methods.server.adaptive import FedAdam as fedadam
from undrift.methods.server.adaptive import FedYogi as fedyogi
from undrift.methods.server.fedexp import FedExP as fedexp
from undrift.methods.server.fedmr import FedMR as fedmr
from undrift.methods.server.hetlora import HetLoRA as hetlora
from undrift.methods.server.momentum import Momentum as momentum
from undrift.methods.server.replace import Replace as replace

__all__ = ["fedadagrad", "fedadam", "fedexp", "fedmr", "fedyogi", "hetlora", "momentum", "replace"]
