"""Pages opened in a real browser from a file: no console error, and every figure is drawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from undrift.cli import command

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom",
)  # fmt: skip


def opened(page: Path, tmp_path: Path) -> tuple[str, str]:
    """(the document after drawing, the output of the console)."""
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed; .ci/run does it"
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"file://{page}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, "\n".join(console)


def test_a_comparison_is_a_page_with_a_table_and_drawn_curves(tmp_path):
    out = tmp_path / "compared"
    arguments = ["compare", "fedavg", "fliu", "--rounds", "3", "--clients", "5", "--out", str(out), "--quiet"]
    assert command(arguments) == 0
    document, console = opened(out / "index.html", tmp_path)
    assert "ERROR" not in console.upper(), console
    for name in ("table", "legend", "curves", "losses", "local", "clients"):
        assert f"id='{name}'" in document.replace('"', "'")
    assert document.count('class="scatterlayer') >= 4
    assert "fedavg" in document


def test_the_figure_of_a_federation_has_a_mark_per_non_zero_cell(tmp_path, capsys):
    page = tmp_path / "page.html"
    arguments = ["data", "show", "digits", "dirichlet(0.1)", "--clients", "20", "--json", "--html", str(page)]
    assert command(arguments) == 0
    counts = json.loads(capsys.readouterr().out)["class_counts"]
    document, console = opened(page, tmp_path)
    assert "ERROR" not in console.upper(), console
    section = document[document.index('id="labels"') : document.index('id="sizes"')]
    assert len(re.findall(r'<path class="point"', section)) == sum(n > 0 for row in counts for n in row)


def test_a_runs_page_draws_every_figure_of_its_record(tmp_path):
    arguments = ["run", "--method", "fliu", "--partition", "pathological(2)", "--cohort", "1.0", "--rounds", "3", "--quiet",
             "--evaluate-every", "1", "--diagnose", "drift+confusion+landscape(points=5)+embedding+gradients",
             "--out", str(tmp_path / "run")]  # fmt: skip
    assert command(arguments) == 0
    assert command(["show", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    document, console = opened(tmp_path / "page.html", tmp_path)
    assert not [line for line in console.splitlines() if "ERROR" in line.upper() and "webgl" not in line.lower()], (
        console
    )
    for name in (
        "stages",
        "scatter-l1",
        "scatter-l2",
        "clients",
        "weights",
        "drift",
        "confusion",
        "embedding",
        "gradients",
    ):
        place = document.index(f'id="{name}"') if f'id="{name}"' in document else document.index(f"id='{name}'")
        assert "main-svg" in document[place : place + 20000], name


def test_the_page_of_a_run_has_its_traces_drawn(tmp_path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    method = "flood(T=1)+fedbss(T1=0)+fedfomo@bound"
    arguments = ["run", "--method", method, "--rounds", "3", "--clients", "5", "--out", str(run), "--quiet"]
    assert command(arguments) == 0
    assert command(["show", str(run), "--html", str(page)]) == 0
    document, console = opened(page, tmp_path)
    assert "ERROR" not in console.upper(), console
    for name in (
        "sampling-flood-scores",
        "sampling-fedbss-survey",
        "personalize-fedfomo-weights",
        "weighting-bound-u",
        "weighting-bound-weight_against",
    ):
        section = document[document.index(f'id="{name}"') :].split("</section>")[0]
        assert "<svg" in section, name
