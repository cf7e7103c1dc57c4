"""What was measured about a federation: one finding per property, with its number and what it suggests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

AXES = ("label skew", "quantity skew", "feature skew", "wrong labels", "drift")


@dataclass(frozen=True)
class Finding:
    """One measured property."""

    name: str
    value: float | None  # None: it could not be measured, and the text says why
    text: str
    suggests: str = ""  # nothing, if empty
    axis: str | None = None  # the axis of remedies it points to, one of AXES
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The finding and what it suggests, as the terminal prints it."""
        return f"{self.text}; {self.suggests}" if self.suggests else self.text


@dataclass(frozen=True)
class Diagnosis:
    """All findings about a federation."""

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        return {finding.name: finding for finding in self.findings}[name]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of remedies that a finding points to, each once, in the order of `AXES`."""
        pointed = {finding.axis for finding in self.findings}
        return tuple(axis for axis in AXES if axis in pointed)

    def as_json(self) -> dict[str, Any]:
        return {"axes": list(self.axes), "findings": [asdict(finding) for finding in self.findings]}

    @staticmethod
    def from_json(table: Mapping[str, Any]) -> Diagnosis:
        return Diagnosis(tuple(Finding(**finding) for finding in table["findings"]))
