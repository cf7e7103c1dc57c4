"""Evaluation: metrics of a set of logits, the stages of a round, diagnostics, and views over recorded curves."""

from __future__ import annotations

from undrift.evaluate.metrics import metrics

__all__ = ["metrics"]
