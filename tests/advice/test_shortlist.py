"""What a diagnosis and the user's constraints leave to race."""

from __future__ import annotations

import pytest

import undrift as ud
from undrift.advice.findings import Diagnosis, Finding
from undrift.advice.shortlist import Constraints, joined, shortlist

DIGITS = ud.federate("digits", "iid", 4)
OPTIONS = {"data": "digits", "clients": 4, "partition": "iid"}


def diagnosis(*axes: str, gathered: bool = False) -> Diagnosis:
    details = {"gathered": gathered}
    named = {"wrong labels": "label_noise"}
    return Diagnosis(
        tuple(Finding(named.get(axis, axis), 0.5, axis, "", axis, details if axis in named else {}) for axis in axes)
    )


def methods(found) -> list[str]:
    return [candidate.method for candidate in found.candidates]


def test_with_nothing_found_plain_averaging_is_all_there_is():
    assert methods(shortlist(diagnosis(), OPTIONS, DIGITS)) == ["fedavg", "fedavg-uniform"]


@pytest.mark.parametrize("axis", ["label skew", "quantity skew", "feature skew", "wrong labels", "drift"])
def test_every_axis_adds_a_remedy_for_it(axis):
    found = shortlist(diagnosis(axis), OPTIONS, DIGITS)
    assert methods(found)[:2] == ["fedavg", "fedavg-uniform"]
    assert axis in {candidate.axis for candidate in found.candidates}


def test_remedies_of_several_axes_are_composed():
    found = shortlist(diagnosis("label skew", "wrong labels"), OPTIONS, DIGITS)
    assert methods(found) == [
        "fedavg", "fedavg-uniform", "scaffold", "feddyn", "fedbss", "fednolowe", "fedbss+scaffold",
        "fedbss+scaffold@fednolowe",
    ]  # fmt: skip
    assert found.candidates[-1].evidence.endswith(" points over fedavg (docs/results/demo.jsonl: 3 seeds)")
    assert found.candidates[-2].evidence == "untested"


def test_noise_that_is_gathered_asks_for_other_remedies_than_noise_that_is_spread():
    gathered = methods(shortlist(diagnosis("wrong labels", gathered=True), OPTIONS, DIGITS))
    spread = methods(shortlist(diagnosis("wrong labels"), OPTIONS, DIGITS))
    assert "bound" in gathered
    assert "bound" not in spread
    assert "fedbss" in spread


def test_every_composition_can_be_composed_and_has_parts_on_different_axes():
    assert joined(["scaffold", "fedprox"]) is None  # both are objectives
    assert joined(["bound", "scaffold", "fednolowe"]) == "scaffold@bound"
    assert joined(["scaffold", "geomedian"]) == "scaffold+geomedian"


def test_everything_takes_what_applies_and_says_why_the_rest_does_not():
    found = shortlist(diagnosis(), OPTIONS, DIGITS, Constraints(personal="either"), everything=True)
    left = dict(found.left_out)
    assert {"scaffold", "ditto", "fedexp", "fedprox"} <= set(methods(found))
    assert "add --proxy" in left["fedlaw"]
    assert "adapters" in left["flexlora"]
    assert not set(left) & set(methods(found))
    assert set(left) | set(methods(found)) >= set(ud.methods.published.PUBLISHED)


def test_personal_models_are_cut_unless_wanted():
    left = dict(shortlist(diagnosis(), OPTIONS, DIGITS, everything=True).left_out)
    assert left["ditto"] == left["fedper"] == "it gives clients models of their own, which are not wanted"
    wanted = shortlist(diagnosis("drift"), OPTIONS, DIGITS, Constraints(personal="yes"))
    assert methods(wanted) == ["fedavg", "fedavg-uniform", "fliu25", "finetune", "fedper", "local"]
    assert "personal ones are wanted" in dict(wanted.left_out)["scaffold"]


def test_what_may_leave_a_site_cuts_by_what_a_method_declares():
    only_models = dict(shortlist(diagnosis(), OPTIONS, DIGITS, Constraints(may_leave="model"), True).left_out)
    assert only_models["bound"] == "it sends spread (one number), and only model may leave a site"
    assert "scaffold" in only_models
    numbers = dict(shortlist(diagnosis(), OPTIONS, DIGITS, Constraints(may_leave="model+numbers"), True).left_out)
    assert "bound" not in numbers
    assert numbers["scaffold"].startswith("it sends change (a vector along the parameters)")


def test_differential_privacy_cuts_what_its_noise_does_not_cover():
    left = dict(shortlist(diagnosis(), OPTIONS, DIGITS, Constraints(dp=True), True).left_out)
    assert "dp does not cover the weights of fednolowe" in left["fednolowe"]
    assert not {"scaffold", "fedprox", "fedavgm"} & set(left)


def test_memory_cuts_methods_that_keep_more_than_plain_averaging():
    # The network has 7510 parameters: received, trained, gradient and momentum are 0.12 MB, SCAFFOLD keeps and sends more.
    left = dict(shortlist(diagnosis(), OPTIONS, DIGITS, Constraints(memory=0.13), True).left_out)
    assert "more than 0.13" in left["scaffold"]
    assert "fedprox" not in left


def test_the_task_cuts_what_needs_classes():
    diabetes = ud.federate("diabetes", "iid", 4)
    found = shortlist(diagnosis("wrong labels"), {"data": "diabetes"}, diabetes, everything=True)
    left = dict(found.left_out)
    assert "needs one class per sample" in left["fedlc"]
    assert "needs logits of classes" in left["fedbss"]
    assert "fedprox" in methods(found)
