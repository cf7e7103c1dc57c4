"""Values that a method refuses: one sentence that names the value, exit code 2, before the first round."""

from __future__ import annotations

from pathlib import Path

import pytest

BAD = [
    ("flood(q=1.5)", ["q", "1.5", "between 0 and 1"]),
    ("flood(q=-0.1)", ["q", "-0.1", "between 0 and 1"]),
    ("flood(T=0)", ["T", "0", "above 0"]),
    ("flood(T=-3)", ["T", "-3", "above 0"]),
    ("flood(a=0)", ["a", "above 0"]),
    ("flood(score=enrgy)", ["enrgy", "energy"]),
    ("fedavg@flood(score=entropy)", ["entropy"]),
    ("flood(schedule=sine)", ["sine", "cosine"]),
    ("flood(alpha=-1)", ["alpha", "-1"]),
    ("bound(radius=0)", ["radius", "0", "at most 1"]),
    ("bound(radius=1.5)", ["radius", "1.5", "at most 1"]),
    ("fedavg@bound(radius=-0.2)", ["radius", "-0.2"]),
    ("bound(points=0)", ["points", "0"]),
    ("fliu(gamma=1.2)", ["gamma", "1.2", "between 0 and 1"]),
    ("fliu(gamma=-0.1)", ["gamma", "-0.1", "between 0 and 1"]),
    ("fliu(steps=[[1, 0.5], [0, 2]])", ["fliu", "steps"]),
    ("apfl(alpha0=2)", ["alpha0", "2"]),
    ("fedfomo(M=0)", ["M", "0"]),
    ("fedbss(T1=-1)", ["T1", "-1"]),
    ("fedbss(boundary=half)", ["half", "uncertainty"]),
    ("fednolowe(invert=cube)", ["cube", "subtract"]),
    ("fedasl(beta=0)", ["beta", "0"]),
    ("sampling.subset(share=0)", ["share", "0"]),
]


@pytest.mark.parametrize(("method", "words"), BAD, ids=[method for method, _ in BAD])
def test_a_bad_value_is_refused_before_the_first_round(undrift, method, words):
    result = undrift("run", "--method", method)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []
    assert not Path("runs").exists()


@pytest.mark.parametrize("method", ["flood(score=ash-s)", "fedavg@flood(score=ash-p)", "fedbss+flood(score=ash-b)"])
def test_ash_on_a_model_whose_features_cannot_be_found_is_refused(undrift, monkeypatch, method):
    Path("headless.py").write_text(
        "from torch import nn\n\ndef make():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.LogSoftmax(1))\n"
    )
    monkeypatch.syspath_prepend(".")
    result = undrift("run", "--method", method, "--model", "headless:make")
    assert result.code == 2, result.err
    assert [word for word in ("flood", "features") if word not in result.sentence] == []
    assert not Path("runs").exists()
