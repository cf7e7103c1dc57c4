"""Sentences about what is less than in the paper: rows that changed alike share one, and nothing is lost."""

from __future__ import annotations

import pytest

from undrift.papers import papers
from undrift.papers.reductions import changed_parameters, condensed
from undrift.papers.scales import scaled


def test_rows_whose_parameters_changed_alike_share_a_sentence() -> None:
    sentences = [
        "rounds 60 instead of 2000",
        "A: flood(q=0.1, T=30) instead of flood(q=0.1, T=1000)",
        "B: flood(q=0.2, T=30) instead of flood(q=0.2, T=1000)",
        "C: flood(q=0.2, T=6) instead of flood(q=0.2, T=200)",
        "D: fedavg instead of flood(q=0.2)",
        "10, noise: clients 30 instead of 50",
    ]
    assert condensed([*sentences, sentences[1]]) == [
        "rounds 60 instead of 2000",
        "A, B: T 30 instead of 1000",
        "C: T 6 instead of 200",
        "D: fedavg instead of flood(q=0.2)",
        "10, noise: clients 30 instead of 50",
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ("flood(a=2, T=3)+scaffold", "flood(a=20, T=30)+scaffold", "a 2 instead of 20, T 3 instead of 30"),
        ("flood(a=2)+scaffold", "flood(a=20)@scaffold", ""),  # another method, not another parameter
        ("flood(a=2)", "flood(a=2, T=30)", ""),
        ("no method (at all", "flood", ""),
    ],
)
def test_only_methods_of_one_shape_are_compared(ours: str, theirs: str, said: str) -> None:
    assert changed_parameters(ours, theirs) == said


def test_every_preset_says_in_few_lines_what_is_less() -> None:
    for name in papers.names():
        for scale in ("quick", "mid"):
            preset = papers.load(name)
            if getattr(preset, scale):
                assert len(condensed(scaled(preset, scale).reductions)) <= 30, name
