"""The headline of a run: the metric that ranks it, and how a person reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Headline:
    """`better` is "higher" or "lower". A percentage is recorded as a share and shown times 100."""

    name: str = "accuracy"
    better: str = "higher"
    title: str = "Acc"
    percent: bool = True

    @property
    def lower(self) -> bool:
        return self.better == "lower"

    @property
    def sign(self) -> int:
        """Multiply a value by it, and larger is better."""
        return -1 if self.lower else 1

    @property
    def factor(self) -> int:
        """From a recorded value to a shown one."""
        return 100 if self.percent else 1

    @property
    def choose(self) -> Callable[..., Any]:
        """`min` or `max`: the best of several values."""
        return min if self.lower else max

    def show(self, value: float | None, sign: str = "") -> str:
        """A value in a table: 97.21, 0.123, 54.3.

        >>> Headline().show(0.97213), Headline("rmse", "lower", "RMSE", False).show(54.3219), Headline().show(None)
        ('97.21', '54.32', '—')
        >>> Headline("rmse", "lower", "RMSE", False).show(0.012345)
        '0.01234'
        """
        if value is None:
            return "—"
        if self.percent:
            return f"{100 * value:{sign}.2f}"
        return f"{value:{sign}.2f}" if abs(value) >= 10 or value == 0 else f"{value:{sign}.4g}"

    def as_json(self, value: float | None) -> dict[str, Any]:
        return {
            "name": self.name, "value": value, "better": self.better, "title": self.title, "percent": self.percent
        }  # fmt: skip

    @staticmethod
    def of(summary: Mapping[str, Any]) -> Headline:
        """The headline of a summary (`--json`); accuracy for one that was written before there were tasks."""
        found = summary.get("headline") or {}
        return Headline(**{key: found[key] for key in ("name", "better", "title", "percent") if key in found})


ACCURACY = Headline()
