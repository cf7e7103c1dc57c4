"""Parts that cannot be combined are refused with a sentence that names both; all others are accepted."""

from __future__ import annotations

import copy

import pytest

from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.methods.naming import method
from undrift.testing import QUICK

REFUSED = [
    # (method, options, words of the sentence)
    ("scaffold", {"optimizer": "adam"}, ["scaffold", "adam"]),
    ("scaffold", {"persist_momentum": True}, ["scaffold", "persist"]),
    ("fednova", {"optimizer": "adam"}, ["fednova", "adam"]),
    ("fednova", {"persist_momentum": True}, ["fednova", "persist"]),
    ("scaffold+fedrep", {}, ["scaffold", "in turn"]),
    ("fednova+fedrep", {}, ["fednova", "in turn"]),
    ("fednova+fliu", {}, ["fednova", "fliu"]),
    ("fednova+fedfomo", {}, ["fednova", "fedfomo"]),
    ("fednova+local", {}, ["fednova", "local"]),
    ("fedmr+fliu", {}, ["fedmr", "fliu"]),
    ("fedmr+fednova", {}, ["fedmr", "fednova"]),
    ("feddyn", {"server": "momentum"}, ["feddyn", "momentum"]),
    ("feddyn+fedavgm", {}, ["feddyn", "momentum"]),
    ("feddyn+fedmr", {}, ["feddyn", "fedmr"]),
    ("flood+bound", {}, ["flood", "bound"]),
    ("flood+fednolowe", {}, ["flood", "fednolowe"]),
    ("fliu+apfl", {}, ["fliu", "apfl"]),
    ("fedavgm+fedadam", {}, ["momentum", "fedadam"]),
    ("fedprox(0.1)+fedprox(0.2)", {}, ["fedprox", "0.1", "0.2"]),
    ("scaffold+objective.scaffold(scaled=true)@uniform+objective.scaffold", {}, ["scaffold", "twice"]),
    ("fedbss+sampling.subset", {}, ["fedbss", "subset"]),
    ("median@bound", {}, ["median", "bound"]),
    ("median+fednolowe", {}, ["median", "fednolowe"]),
    ("krum", {"weighting": "uniform"}, ["krum", "uniform"]),
    ("fedlaw@size", {"needs_proxy": True}, ["fedlaw", "size"]),
    ("fedcda@fednolowe", {}, ["fedcda", "fednolowe"]),
    ("fedexp+median", {}, ["fedexp", "median"]),
    ("fedexp", {"combine": "median"}, ["fedexp", "median"]),
    ("fedexp", {"combine": "fednova"}, ["fedexp", "fednova"]),
    ("fedexp", {"server": "momentum"}, ["fedexp", "momentum"]),
    ("fedprox(adaptive=true)+scaffold", {}, ["scaffold", "adaptive"]),
    ("aflama", {}, ["aflama", "--proxy"]),
    ("fedlaw", {}, ["fedlaw", "--proxy"]),
    ("fedbn", {}, ["normalisation"]),
    ("krum", {"cohort": 3}, ["krum", "cohort"]),
]
ALLOWED = [
    ("scaffold", {"momentum": 0.9}),
    ("scaffold", {"clip": 1.0}),
    ("scaffold+fedprox", {}),
    ("scaffold+fednova", {}),
    ("scaffold+fedexp", {}),
    ("scaffold+fedavgm", {}),
    ("feddyn+fliu", {}),
    ("feddyn+scaffold", {}),
    ("fedlc+fedrs", {}),
    ("flood+moon+feddecorr+fedprox", {}),
    ("fedprox(0.1)+fedprox(0.1)", {}),
]


@pytest.fixture
def prepared(settings, rows, federation):
    def make(text, **options):
        plain = federation
        if not options.pop("needs_proxy", False):
            plain = copy.copy(federation)
            plain.proxy_rows = federation.proxy_rows[:0]
        base = {**QUICK, **settings(rows[0]), "method": text}
        return prepare(from_keywords({**base, **options}), plain)

    return make


@pytest.mark.parametrize(("text", "options", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_with_a_sentence_that_names_both(prepared, text, options, words):
    with pytest.raises(BadRequest) as caught:
        prepared(text, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [word for word in words if word not in sentence] == []


@pytest.mark.parametrize(("text", "options"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_allowed(prepared, text, options):
    prepared(text, **options)


@pytest.mark.parametrize("text", ["fedmr@bound", "fedmr+sampling.subset"])
def test_recombination_under_a_rule_that_measures_the_received_model_warns(prepared, text):
    assert any("measures the received model" in sentence for sentence in prepared(text).notices)


def test_a_preferred_weighting_gives_way_to_a_combine_that_ignores_weights(prepared):
    prepared("median+scaffold")


def test_a_run_that_ends_before_a_schedule_begins_says_so(prepared):
    for text in ("flood(T=100)", "fedbss(T1=100)", "fedmr(T1=100)"):
        assert any("lengthen" in sentence for sentence in prepared(text, rounds=2).notices), text
    assert not any("lengthen" in sentence for sentence in prepared("flood", rounds=50).notices)


def test_flood_at_bound_is_floods_sampling_under_bound_weights():
    made = method("flood@bound")
    assert [part.key for part in made.parts if part.name in ("flood", "bound")] == ["sampling.flood", "weighting.bound"]
    assert any("flood" in sentence and "gives way" in sentence for sentence in made.notices)
