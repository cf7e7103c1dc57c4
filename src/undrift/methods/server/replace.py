"""The plain server update: the combined vector is the next global one."""

from __future__ import annotations

from dataclasses import dataclass

from undrift.contract.parts import ServerUpdate


@dataclass(frozen=True)
class Replace(ServerUpdate):
    pass
