"""The report in a real browser: every section has all its points, tables sort and copy, no network is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from undrift.cli import command
from undrift.papers import papers
from undrift.store.record import rows_of

pytestmark = pytest.mark.browser
ITEMS = ("about", "table", "standings", "federation", "labels", "sizes", "curves", "losses", "local", "trained", "clients",
         "scatter-l1", "scatter-l2", "size", "weights", "notes", "events", "configuration", "environment", "commands")  # fmt: skip
POINTS = """[...document.getElementById('%s-plot').data].filter(t => !(t.name || '').includes('± std')).map(
  t => [t.name, t.z ? t.z.flat().filter(v => v !== null).length : t.x.length])"""
COLUMN = """[...document.querySelector('#table table').tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent))"""
DRAWN = "document.querySelectorAll('.plotly-graph-div').length == document.querySelectorAll('.plotly-graph-div.js-plotly-plot').length"


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("report") / "compared"
    arguments = ["compare", "fedavg", "fliu", "flood", "--rounds", "12", "--clients", "8", "--seeds", "2",
             "--out", str(out), "--quiet"]  # fmt: skip
    assert command(arguments) == 0
    return out


@pytest.fixture
def page(chrome, compared):
    chrome.open(compared / "index.html")
    assert chrome.until(DRAWN)
    return chrome


def points(chrome, name: str) -> list[tuple[str, int]]:
    return [(label, number) for label, number in chrome.value(POINTS % name)]


def test_every_section_has_as_many_points_as_the_record_has_rows(page, compared):
    assert page.errors == []
    missing = [name for name in ITEMS if not page.value(f"!!document.getElementById('{name}')")]
    assert missing == []
    run = compared / "00-fedavg-seed0"
    rounds = rows_of(run, "SELECT COUNT(*) FROM rounds")[0][0]
    for name in ("curves", "losses"):
        assert points(page, name) == [("fedavg", rounds), ("fliu", rounds), ("flood", rounds)]
    evaluated = rows_of(run, "SELECT COUNT(DISTINCT round) FROM metrics WHERE stage='L1'")[0][0]
    for name in ("local", "trained"):
        assert {number for _, number in points(page, name)} == {evaluated}
    clients = rows_of(
        run, "SELECT COUNT(*) FROM metrics WHERE stage='L1' AND data='own' AND metric='accuracy' AND round=11"
    )[0][0]
    for name in ("clients", "scatter-l1", "size"):
        assert {number for _, number in points(page, name)} == {clients}
    for method, number in points(page, "weights"):
        place = next(compared.glob(f"*-{method}-seed0"))
        assert number == rows_of(place, "SELECT COUNT(*) FROM notes WHERE name='weight'")[0][0]


def test_the_page_makes_no_network_request(page):
    requests = "performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('data:'))"
    assert page.value(requests) == []


def test_tables_sort_and_copy(page):
    header = "document.querySelector('#table table').tHead.rows[0].cells[1]"
    assert page.value(f"{header}.textContent") == "G"
    page.value(f"{header}.click()")
    down = page.value(COLUMN)
    page.value(f"{header}.click()")
    up = page.value(COLUMN)
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)
    assert len(set(up)) > 1
    copied = {}
    for name in ("Markdown", "LaTeX", "CSV"):
        page.value(
            f"[...document.querySelectorAll('#table .copy button')].find(b => b.textContent == '{name}').click()"
        )
        copied[name] = page.value("document.querySelector('#table table').dataset.copied")
    assert copied["Markdown"].startswith("| method | G |")
    assert copied["CSV"].startswith("method,G,")
    assert copied["LaTeX"].startswith("\\begin{tabular}{lrrrrrrr}")
    assert "$\\pm$" in copied["LaTeX"]


def test_the_notes_of_a_method_open_with_a_click(page):
    page.value("document.querySelector('#notes-2 details').open = true")
    widths = "[...document.querySelectorAll('#notes-2 .main-svg')].every(s => s.getBoundingClientRect().width > 300)"
    assert page.until(widths)
    assert page.value("document.querySelectorAll('#notes-2 .plotly-graph-div').length") >= 5
    assert page.value("!!document.getElementById('notes-2-protocols')")
    assert page.errors == []


def test_figures_and_text_fit_a_phone(page):
    page.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    try:
        fits = "[...document.querySelectorAll('body > section .main-svg')].every(s => s.getBoundingClientRect().right <= innerWidth + 1)"
        assert page.until(f"innerWidth == 390 && {fits}")
        assert page.value("document.documentElement.scrollWidth") <= 390
    finally:
        page.ask("Emulation.clearDeviceMetricsOverride")


def test_a_single_run_has_a_report_too(chrome, compared, tmp_path):
    target = tmp_path / "one.html"
    assert command(["report", str(compared / "02-flood-seed1"), "--out", str(target)]) == 0
    chrome.open(target)
    assert chrome.until(DRAWN)
    assert chrome.errors == []
    assert [name for name in ITEMS if not chrome.value(f"!!document.getElementById('{name}')")] == []
    assert points(chrome, "curves") == [("flood", 12)]


def test_a_preset_has_a_page_too(chrome, tmp_path):
    out = tmp_path / "out"
    arguments = ["paper", "run", "fednolowe/table3", "--rounds", "3", "--column", "10 %",
             "--row", "FedNolowe", "--row", "FedAvg, size"]  # fmt: skip
    assert command([*arguments, "--seeds", "1", "--out", str(out), "--quiet"]) == 0
    chrome.open(out / "index.html")
    assert chrome.until(DRAWN)
    assert chrome.errors == []
    claims = len(papers.load("fednolowe/table3").claims)
    assert chrome.value("document.querySelector('#claims table').tBodies[0].rows.length") == claims
    assert points(chrome, "curves-10__") == [("FedAvg, size", 3), ("FedNolowe", 3)]
