"""From the combined vector the next global one."""

from __future__ import annotations

from undrift.server.fedmr import FedMR as fedmr
from undrift.server.momentum import Momentum as momentum
from undrift.server.replace import Replace as replace

__all__ = ["fedmr", "momentum", "replace"]
