"""Judging models: metrics of one set of logits, and who is judged on what."""

from __future__ import annotations

from undrift.evaluate.metrics import metrics

__all__ = ["metrics"]
