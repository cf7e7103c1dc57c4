"""Joining by three ranks: what is named on an axis beats what a name brings, which beats what it merely prefers."""

from __future__ import annotations

import pytest

from undrift.contract.compose import Method
from undrift.core.errors import BadRequest
from undrift.methods import combine, objectives, personalize, sampling, server, weighting
from undrift.methods.naming import method


def weights(made: Method) -> str:
    return made.one("weighting").name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fedavg", "size"),
        ("scaffold", "uniform"),
        ("fedbss+scaffold", "uniform"),
        ("flood", "flood"),
        ("flood+scaffold", "flood"),
        ("scaffold+flood", "flood"),
        ("flood@bound", "bound"),
        ("flood@bound+scaffold", "bound"),
        ("scaffold@size", "size"),
        ("fednolowe+fliu", "fednolowe"),
    ],
)
def test_the_higher_rank_takes_the_place(text, name):
    assert weights(method(text)) == name


def test_what_gave_way_is_said():
    (said,) = method("flood@bound").notices
    assert "bound" in said
    assert "flood" in said
    assert "brings" in said
    (said,) = method("flood+scaffold").notices
    assert "uniform" in said
    assert "prefers" in said
    assert method("scaffold").notices == ()


def test_preferences_that_differ_cancel_to_the_default_and_that_is_said():
    first = Method("first", (weighting.uniform(),))
    second = Method("second", (weighting.fednolowe(),))
    made = method(first, second)
    assert weights(made) == "size"
    assert any("first" in said and "second" in said and "default" in said for said in made.notices)


def test_equal_ranks_that_differ_are_an_error_that_names_both():
    with pytest.raises(BadRequest, match=r"flood .*bound|bound .*flood"):
        method("flood+bound")
    with pytest.raises(BadRequest, match=r"uniform .*size|size .*uniform"):
        method(weighting.uniform(), weighting.size())


def test_the_same_part_twice_is_once_and_with_other_values_an_error():
    assert len(method("fedprox(0.1)+fedprox(0.1)").on("objective")) == 1
    with pytest.raises(BadRequest, match="fedprox"):
        method("fedprox(0.1)+fedprox(0.2)")


def test_what_is_named_replaces_the_same_part_that_a_name_brings():
    made = method("fedprox(0.1)", objectives.fedprox(0.2))
    assert made.on("objective") == [objectives.fedprox(0.2)]
    assert any("replaces" in said for said in made.notices)


def test_half_of_a_part_on_two_axes_cannot_be_taken_away():
    for other in (server.momentum(), server.fedadam()):
        with pytest.raises(BadRequest, match="feddyn"):
            method("feddyn", other)
    with pytest.raises(BadRequest, match="fedexp"):
        method("fedexp", combine.median())


def test_only_one_part_may_pick():
    with pytest.raises(BadRequest, match="both pick"):
        method("fedbss", sampling.subset())
    method("flood+fedbss")


def test_an_axis_option_names():
    made = method("flood", axes=[("weighting", weighting.uniform())])
    assert weights(made) == "uniform"
    assert "weighting.uniform" in made.name


def test_the_order_of_names_does_not_matter():
    assert set(method("fedprox+scaffold+flood").parts) == set(method("flood+scaffold+fedprox").parts)
    assert method("fedprox+scaffold+flood").parts == method("flood+scaffold+fedprox").parts


def test_a_method_made_of_parts_equals_the_one_made_of_text():
    parts = method(sampling.flood(), objectives.scaffold(), weighting.bound(), server.momentum(0.9), personalize.fliu())
    assert parts.parts == method("flood+scaffold@bound+fliu+fedavgm").parts


def test_a_method_joined_again_is_the_same():
    made = method("flood+scaffold@bound")
    assert method(made).parts == made.parts


def test_every_single_place_is_filled():
    made = method()
    assert [part.key for part in made.parts] == ["weighting.size", "combine.mean", "server.replace"]
    assert made.name == "fedavg"
    assert made.one("personalize") is None


def test_what_is_no_part_is_refused():
    with pytest.raises(BadRequest, match="not of int"):
        method(3)
