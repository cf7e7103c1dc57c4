"""The report in a real browser: every item is there with all its points, tables sort and copy, no network is needed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from undrift.cli import command
from undrift.result import rows_of

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=15000", "--dump-dom",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
# What a reader would do, done by the page itself; what came of it is left in the document.
LOOK = """
<script>addEventListener('load', () => setTimeout(() => {
  const seen = {ids: [...document.querySelectorAll('section[id]')].map(s => s.id), points: {}, wide: 0, resources: []};
  for (const plot of document.querySelectorAll('.plotly-graph-div')) {
    seen.points[plot.id] = plot.data.map(t => [t.name, t.type, t.z ? t.z.flat().filter(v => v !== null).length : t.x.length]);
    seen.wide = Math.max(seen.wide, plot.querySelector('.main-svg').getBoundingClientRect().right - innerWidth);
  }
  const table = document.querySelector('#table table');
  const column = [...table.tHead.rows[0].cells].findIndex(c => c.textContent === 'G');
  const values = () => [...table.tBodies[0].rows].map(r => parseFloat(r.cells[column].textContent));
  table.tHead.rows[0].cells[column].click(); seen.down = values();
  table.tHead.rows[0].cells[column].click(); seen.up = values();
  seen.copied = {};
  for (const button of document.querySelectorAll('#table .copy button')) {
    const name = button.textContent; button.click(); seen.copied[name] = table.dataset.copied;
  }
  seen.resources = performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('data:'));
  const found = document.createElement('div'); found.id = 'seen'; found.textContent = JSON.stringify(seen);
  document.body.appendChild(found);
}, 500))</script>
"""
ITEMS = ("about", "table", "standings", "federation", "holdings", "sizes", "curves", "losses", "local", "trained", "clients",
         "size", "weights", "notes", "events", "configuration", "environment", "commands")  # fmt: skip


def looked_at(page: Path, tmp_path: Path, size: str = "1200,900") -> tuple[dict, str]:
    """(what the page found when it used itself, what the console said)."""
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed; .ci/run does it"
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text().replace("</body>", LOOK + "</body>"))
    done = subprocess.run([browser, *FLAGS, f"--window-size={size}", f"--user-data-dir={tmp_path / 'profile'}", f"file://{copy}"],
                          capture_output=True, text=True, timeout=180)  # fmt: skip
    console = "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    found = re.search(r'<div id="seen">(.*?)</div>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1])), console


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "compared"
    words = ["compare", "fedavg", "fliu", "flood", "--rounds", "12", "--clients", "8", "--seeds", "2", "--out", str(out), "--quiet"]
    assert command(words) == 0
    return out


def test_every_item_is_there_with_as_many_points_as_the_record_has_rows(compared, tmp_path):
    seen, console = looked_at(compared / "index.html", tmp_path)
    assert "ERROR" not in console.upper(), console
    assert [name for name in ITEMS if name not in seen["ids"]] == []
    assert seen["resources"] == []
    run = compared / "00-fedavg-seed0"
    rounds = rows_of(run, "SELECT COUNT(*) FROM rounds")[0][0]
    for name in ("curves", "losses"):
        lines = [(who, points) for who, kind, points in seen["points"][f"{name}-plot"] if "± std" not in who]
        assert lines == [("fedavg", rounds), ("fliu", rounds), ("flood", rounds)]
    judged = rows_of(run, "SELECT COUNT(DISTINCT round) FROM metrics WHERE stage='L1'")[0][0]
    for name in ("local", "trained"):
        assert {points for who, _, points in seen["points"][f"{name}-plot"] if "± std" not in who} == {judged}
    clients = rows_of(run, "SELECT COUNT(*) FROM metrics WHERE stage='L1' AND data='own' AND metric='accuracy' AND round=11")[0][0]
    assert {points for _, _, points in seen["points"]["clients-plot"]} == {clients}
    for who, _, points in seen["points"]["weights-plot"]:
        place = next(compared.glob(f"*-{who}-seed0"))
        assert points == rows_of(place, "SELECT COUNT(*) FROM notes WHERE name='weight'")[0][0]


def test_tables_sort_and_copy(compared, tmp_path):
    seen, _ = looked_at(compared / "index.html", tmp_path)
    assert seen["down"] == sorted(seen["down"], reverse=True)
    assert seen["up"] == sorted(seen["up"])
    assert len(set(seen["up"])) > 1
    assert seen["copied"]["Markdown"].startswith("| method | G |")
    assert seen["copied"]["CSV"].startswith("method,G,")
    assert seen["copied"]["LaTeX"].startswith("\\begin{tabular}{lrrrrrrr}")
    assert "$\\pm$" in seen["copied"]["LaTeX"]


def test_figures_fit_a_narrow_screen(compared, tmp_path):
    seen, _ = looked_at(compared / "index.html", tmp_path, "500,900")
    assert seen["wide"] <= 0


def test_a_single_run_has_a_report_too(compared, tmp_path):
    page = tmp_path / "one.html"
    assert command(["report", str(compared / "02-flood-seed1"), "--out", str(page)]) == 0
    seen, console = looked_at(page, tmp_path)
    assert "ERROR" not in console.upper(), console
    assert [name for name in ITEMS if name not in seen["ids"]] == []
    assert [points for _, _, points in seen["points"]["curves-plot"]] == [12]
