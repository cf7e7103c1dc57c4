"""A diagnosis is data: it survives JSON, and points to each axis once."""

from __future__ import annotations

import json

import pytest

from undrift.advice.findings import Diagnosis, Finding

SOME = Diagnosis((
    Finding("drift", 2.0, "drift 2.0", "remedies for drift", "drift", {"relative": 2.0}),
    Finding("label_skew", 0.5, "label skew 0.50", "remedies", "label skew"),
    Finding("classes_per_client", 1.5, "classes 1.5", "", "label skew"),
    Finding("label_noise", None, "cannot be measured"),
))  # fmt: skip


def test_axes_are_named_once_and_in_order():
    assert SOME.axes == ("label skew", "drift")


def test_a_finding_is_found_by_its_name():
    assert SOME["drift"].value == 2.0
    with pytest.raises(KeyError):
        SOME["nothing"]


def test_it_survives_json():
    assert Diagnosis.from_json(json.loads(json.dumps(SOME.as_json()))) == SOME


def test_a_line_ends_with_what_it_suggests_if_anything():
    assert SOME["drift"].line == "drift 2.0; remedies for drift"
    assert SOME["label_noise"].line == "cannot be measured"
