"""Engines map orders to replies. Parts cannot tell which one runs them."""

from __future__ import annotations

from undrift.engine.base import Engine
from undrift.engine.inline import Inline
from undrift.engine.processes import Processes

__all__ = ["Engine", "Inline", "Processes"]
