"""Measure a federation: how its clients differ, and what that suggests. Test data are never looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from undrift.advice.findings import Diagnosis, Finding
from undrift.federation.federation import Federation
from undrift.report.label_distribution import gini


def diagnose(
    options: Mapping[str, Any], federation: Federation, on_message: Callable[[str], None] = lambda sentence: None
) -> Diagnosis:
    """Everything that can be measured about this federation. `options` are those of `undrift run`."""
    value = gini(federation.sizes)
    return Diagnosis((Finding("quantity_skew", value, f"sizes differ: Gini {value:.2f}"),))
