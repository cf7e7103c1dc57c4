"""The page of `undrift advise` in a real browser: every figure is drawn and fits a desktop and a phone, light and dark."""

from __future__ import annotations

import json

import pytest

from undrift.advice import advisor, start
from undrift.advice.findings import Diagnosis
from undrift.advice.shortlist import Candidate, Shortlist
from undrift.cli import command

pytestmark = pytest.mark.browser
DRAWN = "document.querySelectorAll('.plotly-graph-div').length == document.querySelectorAll('.plotly-graph-div.js-plotly-plot').length"
FITS = "[...document.querySelectorAll('.main-svg')].every(s => s.getBoundingClientRect().right <= innerWidth + 1)"
PARTS = ("answer", "command", "difference", "change", "heats", "standings", "diagnosis", "diagnosis-findings", "how")


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    out = tmp_path_factory.mktemp("advise") / "race"
    plain = [Candidate(name, "plain", None, (), "a control", "untested") for name in ("fedavg", "fedavg-uniform")]
    arguments = ["advise", "digits", "--partition", "dirichlet(0.1)", "--noise", "symmetric(0.3)", "--clients", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "shortlist", lambda *_: Shortlist(tuple(plain), (("fedbn", "no norms"),)))
        more = ["--rounds", "2", "--epochs", "1", "--budget", "60r", "--out", str(out), "--quiet"]
        assert command([*arguments, *more]) == 0
    assert isinstance(advisor.known_diagnosis(out), Diagnosis)
    return out


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, False), (390, True)])
def test_the_page_is_drawn_and_fits(chrome, race, width, phone, colours):
    """A narrow window of a desktop is not a phone."""
    chrome.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
    chrome.ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=phone)
    try:
        chrome.open(race / "index.html")
        assert chrome.until(DRAWN)
        assert chrome.errors == []
        assert [name for name in PARTS if not chrome.value(f"!!document.getElementById('{name}')")] == []
        assert chrome.until(f"innerWidth == {width} && {FITS}", 5)
        assert chrome.value("document.documentElement.scrollWidth") <= width
    finally:
        chrome.ask("Emulation.clearDeviceMetricsOverride")
        chrome.ask("Emulation.setEmulatedMedia", features=[])


def test_figures_follow_a_window_that_gets_narrower(chrome, race):
    narrow = {"height": 844, "deviceScaleFactor": 1, "mobile": False}
    chrome.ask("Emulation.setDeviceMetricsOverride", width=1280, **narrow)
    try:
        chrome.open(race / "index.html")
        assert chrome.until(DRAWN)
        chrome.ask("Emulation.setDeviceMetricsOverride", width=390, **narrow)
        assert chrome.until(f"innerWidth == 390 && {FITS}", 5)
        assert chrome.value("document.documentElement.scrollWidth") <= 390
    finally:
        chrome.ask("Emulation.clearDeviceMetricsOverride")


def test_the_page_shows_the_answer_and_its_numbers(chrome, race):
    answer = json.loads((race / "advise.json").read_text())
    chrome.open(race / "index.html")
    assert chrome.until(DRAWN)
    assert chrome.value("document.querySelector('#answer p').textContent") == answer["sentences"][0]
    assert chrome.value("document.querySelector('#command pre').textContent") == answer["recommended"]["command"]
    fresh = "document.getElementById('difference-plot').data[0].y.length"
    assert chrome.value(fresh) == answer["difference"]["seeds"]
    labels = {(one["method"], one["lr"]) for heat in answer["heats"] for one in heat["standings"]}
    assert chrome.value("document.querySelector('#standings table').tBodies[0].rows.length") == len(labels)
    assert f"--budget {answer['budget']['repeat']} repeats it" in chrome.value("document.body.textContent")
