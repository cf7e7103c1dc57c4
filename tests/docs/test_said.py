"""Pages that are made from the code or from kept results are up to date, and what they count is right."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from undrift import models
from undrift.cli import command
from undrift.experiment.setup import read_faults
from undrift.federation.dealing import read_rules

ROOT = Path(__file__).parents[2]


def attacks():
    spec = importlib.util.spec_from_file_location("make_attacks", ROOT / "docs" / "make_attacks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_models_is_what_the_command_prints(capsys):
    assert command(["models", "--markdown"]) == 0
    assert (ROOT / "docs" / "models.md").read_text() == capsys.readouterr().out, (
        "run `undrift models --markdown > docs/models.md`"
    )


@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 10), ((3, 32, 32), 100), ((7,), 3)])
def test_counts_are_those_of_the_networks(shape, classes):
    found = {one["name"]: one for one in models.described(shape, classes)}
    assert list(found) == models.names()
    for name in ("logistic", "lenet5", "cnn3", "resnet20"):
        if found[name]["parameters"] is not None:
            module = models.build(name, shape, classes)
            assert found[name]["parameters"] == sum(p.numel() for p in module.parameters())
            assert found[name]["buffers"] == sum(b.numel() for b in module.buffers())
    features = 1
    for side in shape:
        features *= side
    assert found["logistic"]["parameters"] == (features + 1) * classes
    assert (found["lenet5"]["parameters"] is None) == (len(shape) == 1)


def test_the_command_counts_for_any_shape_and_refuses_what_is_none(capsys):
    assert command(["models", "--shape", "7", "--classes", "3", "--json"]) == 0
    found = {one["name"]: one["parameters"] for one in json.loads(capsys.readouterr().out)}
    assert (found["logistic"], found["lenet5"]) == (24, None)
    assert command(["models"]) == 0
    assert re.search(r"lenet5 +61,706 ", capsys.readouterr().out)
    for wrong in (["--shape", "3x32"], ["--shape", "ax1"], ["--shape", "0"], ["--classes", "0"], ["--classes", "1.5"]):
        assert command(["models", *wrong]) == 2
        assert wrong[1] in capsys.readouterr().err


def test_the_page_of_attacks_is_what_the_kept_runs_say():
    module = attacks()
    assert (ROOT / "docs" / "attacks.md").read_text() == module.document(), "run `python docs/make_attacks.py`"
    # One cell by hand: the mean of the kept seeds.
    rows = [json.loads(line) for line in module.KEPT.read_text().splitlines()]
    cell = [100 * r["accuracy"] for r in rows if (r["rule"], r["trouble"], r["share"]) == ("geomedian", "scale", 0.4)]
    assert f"`geomedian` {sum(cell) / len(cell):.1f}" in module.document()
    found = module.seeds_of(rows)
    assert module.ahead(found, "scale", 0.4, "geomedian")
    assert not module.ahead(found, "constant", 0.4, "geomedian")


def test_the_options_of_the_page_of_attacks_work():
    for _, option in attacks().ATTACKS.values():
        name, text = re.fullmatch(r'--(\w+) "(.*)"', option).groups()
        made = read_faults(text) if name == "faults" else read_rules("iid", text)[1]
        assert made[0].unit == "client"
