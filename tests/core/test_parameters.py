"""Laws of declared parameters: ranges, the signatures derived from them, and the values that every part refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import undrift as ud
from undrift.contract.parameters import Parameter, Range, parameters
from undrift.contract.parts import Part
from undrift.core.errors import BadRequest
from undrift.core.text import fits, spell
from undrift.methods.describe import describe
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED

PARTS: dict[str, Any] = {
    f"{axis}.{name}": kind for axis, table in part_tables().items() for name, kind in table.items()
}
RANGED = [(name, p) for name, kind in PARTS.items() for p in parameters(kind) if p.range is not None]
IDS = [f"{name}.{p.name}" for name, p in RANGED]
# Fields that another field limits further, and a value of that other field that does not.
COMPANIONS = {"weighting.bound.M": {"loss": "ce"}, "weighting.bound.start": {"radius": 1.0}}

# ---- ranges --------------------------------------------------------------------------------------------------------

RANGES = [
    (Range(least=0, most=1), "between 0 and 1", [0, 0.5, 1], [-0.1, 1.1]),
    (Range(least=1), "at least 1", [1, 1e300], [0, 0.999]),
    (Range(above=0), "above 0", [5e-324, 3], [0, -0.0, -1]),
    (Range(most=2), "at most 2", [-1e300, 2], [2.1]),
    (Range(below=2), "below 2", [-5, 1.999], [2, 3]),
    (Range(least=0, below=0.5), "at least 0 and below 0.5", [0, 0.499], [-0.1, 0.5]),
    (Range(above=0, most=1), "above 0 and at most 1", [1e-9, 1], [0, 1.001]),
    (Range(above=0, below=1), "above 0 and below 1", [0.5], [0, 1]),
]


@pytest.mark.parametrize(("limits", "text", "inside", "outside"), RANGES, ids=[text for _, text, _, _ in RANGES])
def test_a_range_contains_the_numbers_its_text_names(limits, text, inside, outside):
    assert str(limits) == text
    assert [value for value in inside if value not in limits] == []
    assert [value for value in outside if value in limits] == []


@pytest.mark.parametrize("limits", [Range(), *(limits for limits, _, _, _ in RANGES)], ids=str)
def test_no_range_contains_infinities_or_nan(limits):
    assert [value for value in (math.inf, -math.inf, math.nan) if value in limits] == []


# ---- derived signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_published_name_has_the_parameters_of_its_parts_except_those_it_fixes(name):
    row = PUBLISHED[name]
    declared = {p.name: p for kind in row.brings for p in parameters(kind)}
    assert set(row.fixed) <= set(declared)
    derived = row.signature.parameters
    assert set(derived) == set(declared) - set(row.fixed)
    for key, parameter in derived.items():
        assert (parameter.default, parameter.annotation) == (declared[key].default, declared[key].hint)


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_parts_that_share_a_parameter_declare_it_alike(name):
    """A published name has one parameter for both, so type, range and default must be the same."""
    declared: dict[str, Parameter] = {}
    for kind in PUBLISHED[name].brings:
        for p in parameters(kind):
            assert declared.setdefault(p.name, p) == p


@pytest.mark.parametrize("name", list(PARTS))
def test_every_part_leaves_the_checks_of_its_fields_to_the_contract(name):
    assert PARTS[name].__post_init__ is Part.__post_init__


@pytest.mark.parametrize("name", list(PARTS))
def test_every_default_fits_its_own_declaration(name):
    for p in parameters(PARTS[name]):
        if p.name not in ("rules", "shares", "pattern"):  # required, without a default
            p.check(name, p.default)


# ---- values --------------------------------------------------------------------------------------------------------


def ends(p: Parameter) -> Iterator[tuple[float, float]]:
    """(the last value inside, the first value outside) at each end of a parameter's range."""
    whole = not fits(0.5, p.hint)

    def beside(value: float, towards: float) -> float:
        step = math.copysign(1, towards)
        return int(value + step) if whole else math.nextafter(value, towards)

    def itself(value: float) -> float:
        return int(value) if whole else float(value)

    limits = p.range
    assert limits is not None
    if math.isfinite(limits.least):
        yield itself(limits.least), beside(limits.least, -math.inf)
    if math.isfinite(limits.above):
        yield beside(limits.above, math.inf), itself(limits.above)
    if math.isfinite(limits.most):
        yield itself(limits.most), beside(limits.most, math.inf)
    if math.isfinite(limits.below):
        yield beside(limits.below, -math.inf), itself(limits.below)


def texts(name: str, p: Parameter, value: float) -> Iterator[str]:
    """Everything a user can type to give a part this value: `axis.part(…)` and the published names that bring it."""
    yield f"{name}({p.name}={spell(value)})"
    for row in PUBLISHED.values():
        if PARTS[name] in row.brings and p.name in row.signature.parameters:
            yield f"{row.name}({p.name}={spell(value)})"


def refused(name: str, p: Parameter, value: float, **others: Any) -> None:
    """The part, its text and `ud.method` refuse the value, in one sentence that names field and value."""
    sentences = []
    with pytest.raises(BadRequest) as direct:
        PARTS[name](**{p.name: value}, **others)
    sentences.append(str(direct.value))
    for text in texts(name, p, value):
        with pytest.raises(BadRequest) as typed:
            ud.method(text)
        sentences.append(str(typed.value))
    assert [s for s in sentences if f"{p.name} must be" not in s or not s.endswith(f"not {spell(value)}")] == []
    assert len({sentence[sentence.index(f"{p.name} must be") :] for sentence in sentences}) == 1


@pytest.mark.parametrize(("name", "p"), RANGED, ids=IDS)
def test_a_value_just_inside_is_accepted_and_one_just_outside_refused(name, p):
    others = COMPANIONS.get(f"{name}.{p.name}", {})
    for inside, outside in ends(p):
        part = PARTS[name](**{p.name: inside}, **others)
        assert getattr(part, p.name) == inside
        refused(name, p, outside, **others)


@pytest.mark.parametrize(("name", "p"), RANGED, ids=IDS)
def test_infinities_and_nan_are_refused_everywhere(name, p):
    for value in (math.inf, math.nan):
        refused(name, p, value, **COMPANIONS.get(f"{name}.{p.name}", {}))


@pytest.mark.parametrize(("name", "p"), RANGED, ids=IDS)
def test_none_is_accepted_only_where_it_is_declared(name, p):
    if fits(None, p.hint):
        assert getattr(PARTS[name](**{p.name: None}), p.name) is None
    else:
        with pytest.raises(BadRequest, match=f"{p.name} must be"):
            PARTS[name](**{p.name: None})


def test_the_sentence_names_part_field_range_and_value():
    with pytest.raises(BadRequest, match=r"^flood: q must be between 0 and 1, not 1\.5$"):
        ud.method("flood(q=1.5)")
    with pytest.raises(BadRequest, match=r"^flood: T must be above 0, or none, not 0$"):
        ud.method("flood(T=0)")
    with pytest.raises(BadRequest, match=r"^bound: radius must be above 0 and at most 1, not 1\.5$"):
        ud.method("bound(radius=1.5)")
    with pytest.raises(BadRequest, match=r"^fedavgm: momentum: rho must be at least 0 and below 1, not 2$"):
        ud.method("fedavgm(2)")  # as typed, then the part that refuses


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_description_says_what_every_parameter_may_be(name):
    found = describe(name)
    assert list(found["allowed"]) == list(found["parameters"])
    assert all(found["allowed"].values())


def test_what_a_parameter_may_be_is_said_in_words():
    allowed = describe("flood")["allowed"]
    assert allowed["q"] == "a number between 0 and 1"
    assert allowed["T"] == "a whole number above 0, or none"
    assert allowed["start_form"] == "shift or stop"
