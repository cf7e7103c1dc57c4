"""Evaluation: metrics of a set of logits, the stages of a round, diagnostics, and views over recorded curves."""
