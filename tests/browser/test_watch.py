"""`undrift watch` in a real browser: rounds arrive without reloading, tables sort and filter, nothing else is asked for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser


def loaded(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


LIVE = Path(__file__).parents[1] / "live"
made, servers = loaded("watch_made", LIVE / "made.py"), loaded("watch_servers", LIVE / "test_server.py")
DRAWN = "[...document.querySelectorAll('.plotly-graph-div')].filter(d => !d.closest('details:not([open])')).every(d => d.classList.contains('js-plotly-plot')) && !!document.querySelector('.js-plotly-plot')"  # noqa: E501
POINTS = "(document.getElementById('%s-plot').data || []).reduce((sum, t) => sum + t.x.length, 0)"
ELSEWHERE = "performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin) && !n.startsWith('data:') && !n.startsWith('blob:'))"  # noqa: E501
ROWS = "[...document.querySelector('#table table').tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[%d].textContent.trim())"
UNDRIFT = [sys.executable, "-c", "from undrift.cli import main; main()"]


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen([*UNDRIFT, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def opened(chrome, server, path: str, width: int = 1200, dark: bool = False) -> None:
    theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    chrome.ask("Emulation.setEmulatedMedia", features=theme)
    chrome.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    chrome.open("about:blank")  # an earlier page may still ask a server that has ended
    chrome.open(f"http://127.0.0.1:{server.port}{path}")
    assert chrome.until("document.getElementById('connection').textContent == 'live'")


def press(chrome, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        chrome.ask(
            "Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" and len(key) == 1 else ""
        )


def typed(chrome, selector: str, value: str) -> None:
    """Type into a field, or choose in a list."""
    field = f'document.querySelector("{selector}")'
    chrome.value(f"{field}.value = '{value}'")
    chrome.value(f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Two hundred runs, and a server that watches them."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(200):
        method = ("fedavg", "fedprox(mu=0.1)", "scaffold", "fliu")[number % 4]
        made.made_run(
            folder / f"run-{number:03d}",
            method,
            rounds=20,
            done=1 + number % 20,
            data="digits" if number % 2 else "two-moons",
        )
    with servers.watching(str(folder)) as server:
        yield server


def test_rounds_of_a_comparison_of_four_methods_arrive_without_reloading(chrome, tmp_path):
    out = tmp_path / "runs" / "four"
    arguments = [
        "compare",
        "fedavg",
        "fedprox",
        "scaffold",
        "fliu",
        "--rounds",
        "150",
        "--clients",
        "10",
        "--out",
        str(out),
        "--quiet",
    ]
    with started(*arguments) as comparison:
        end = time.monotonic() + 120
        while not list(out.glob("*/run.sqlite")) and time.monotonic() < end:
            time.sleep(0.1)
        with servers.watching(str(tmp_path / "runs")) as server:
            opened(chrome, server, "/study?id=four")
            chrome.value("window.loadedOnce = true")
            assert chrome.until("!!document.getElementById('curves-plot') && " + POINTS % "curves" + " > 2", 60)
            seen = chrome.value(POINTS % "curves")
            assert chrome.until(POINTS % "curves" + f" > {seen}", 60)
            assert comparison.wait(300) == 0
            finished = "[...document.querySelectorAll('#filling tbody .state.finished')].length == 4"
            assert chrome.until(finished, 60)
            assert chrome.until("document.getElementById('about').textContent.includes('finished')", 30)
            names = chrome.value(
                "document.getElementById('curves-plot').data.filter(t => t.showlegend !== false).map(t => t.name)"
            )
            assert names == ["fedavg", "fedprox", "scaffold", "fliu"]
            assert chrome.value("window.loadedOnce")
            assert chrome.errors == []
            assert chrome.value(ELSEWHERE) == []


def test_a_killed_run_is_stopped_and_has_its_resume_command(chrome, tmp_path):
    out = tmp_path / "runs" / "one"
    out.parent.mkdir()
    run_it = ("run", "--rounds", "5000", "--clients", "5", "--out", str(out), "--quiet")
    with started(*run_it) as run, servers.watching(str(tmp_path / "runs")) as server:
        opened(chrome, server, "/")
        assert chrome.until("!!document.querySelector('#table .state.running')", 120)
        opened(chrome, server, "/run?id=one")
        assert chrome.until("document.getElementById('facts').textContent.includes('running')", 60)
        assert chrome.until(DRAWN, 60)
        run.send_signal(signal.SIGKILL)
        assert chrome.until("document.getElementById('facts').textContent.includes('stopped')", 30)
        command = chrome.value("document.querySelector('#resume-command pre').textContent")
        assert command == f"undrift resume {out}"
        assert chrome.errors == []


def test_two_hundred_runs_sort_and_filter_and_stay_so(chrome, many):
    opened(chrome, many, "/")
    assert len(chrome.value(ROWS % 1)) == 200
    header = "document.querySelector('#table table').tHead.rows[0].cells[3]"
    chrome.value(f"{header}.click()")
    down = [float(text) for text in chrome.value(ROWS % 3)]
    assert down == sorted(down, reverse=True)
    typed(chrome, "select[data-filter='6']", "scaffold")
    assert set(chrome.value(ROWS % 6)) == {"scaffold"}
    assert len(chrome.value(ROWS % 6)) == 50
    typed(chrome, "#filter-name", "run-00")
    assert sorted(chrome.value(ROWS % 1)) == ["run-002", "run-006"]
    chrome.value("ask()")  # everything is sent again
    time.sleep(1.5)
    assert sorted(chrome.value(ROWS % 1)) == ["run-002", "run-006"]
    assert chrome.value(f"{header}.getAttribute('aria-sort')") == "descending"
    assert chrome.errors == []


def test_selected_runs_are_drawn_over_the_axis_that_is_chosen(chrome, many):
    opened(chrome, many, "/")
    assert chrome.until(DRAWN)
    chrome.value("document.querySelector('[data-clear]').click()")
    for name in ("run-019", "run-036"):
        chrome.value(f"document.querySelector('[data-select=\"{name}\"]').click()")
    lines = "document.getElementById('lines-plot').data.map(t => [t.name, t.x.length, t.line.color])"
    first = "document.querySelectorAll('[data-select]:checked').length"
    chosen = chrome.value(first)
    assert chrome.until(f"document.getElementById('lines-plot').data.length == {chosen}")
    found = {name: (count, colour) for name, count, colour in chrome.value(lines)}
    assert found  # every method has one colour
    by_method: dict[str, set[str]] = {}
    for name, (_, colour) in found.items():
        by_method.setdefault(name.partition(" (run")[0], set()).add(colour)
    assert all(len(colours) == 1 for colours in by_method.values())
    chrome.value("document.querySelector('[data-x=seconds]').click()")
    assert chrome.until("document.getElementById('lines-plot').layout.xaxis.title.text == 'seconds of the rounds'")
    assert chrome.value("document.getElementById('lines-plot').data[0].x[0]") == 0.5
    assert chrome.errors == []


def test_every_figure_can_be_saved_as_csv_and_png(chrome, many):
    opened(chrome, many, "/run?id=run-019")
    assert chrome.until("!!document.getElementById('r-weights-plot')", 60)
    assert chrome.until(DRAWN)
    names = "[...document.querySelectorAll('.js-plotly-plot')].map(d => [...d.nextElementSibling.querySelectorAll('button')].map(b => b.textContent).join())"  # noqa: E501
    assert chrome.until(f"{names}.every(n => n == 'PNG,CSV')")
    picture = "Plotly.toImage(document.getElementById('headline-plot'), {format: 'png'})"
    chrome.value(f"window.picture = ''; {picture}.then(p => {{ window.picture = p }})")
    assert chrome.until("window.picture.startsWith('data:image/png')")
    chrome.value("URL.createObjectURL = () => 'data:,'")  # the file itself is not wanted here
    chrome.value(
        "[...document.getElementById('headline-plot').nextElementSibling.querySelectorAll('button')][1].click()"
    )
    saved = chrome.value("document.getElementById('headline-plot').dataset.saved").splitlines()
    assert saved[0] == "figure,line,x,y,z"
    assert saved[1] == "G accuracy,fliu,1,0.5,"
    assert len(saved) == 1 + 20


def test_a_phone_sees_everything_without_scrolling_sideways(chrome, many):
    for path in ("/", "/run?id=run-019"):
        opened(chrome, many, path, width=390)
        assert chrome.until(DRAWN, 60)
        assert chrome.value("document.documentElement.scrollWidth <= innerWidth"), path
    opened(chrome, many, "/", width=1200)


def test_keys_move_open_and_change_the_theme(chrome, many):
    opened(chrome, many, "/")
    press(chrome, "j")
    press(chrome, "j")
    assert chrome.value("document.querySelector('tr.current').dataset.key") == "run-001"
    press(chrome, "k")
    assert chrome.value("document.querySelector('tr.current').dataset.key") == "run-000"
    assert chrome.value("document.documentElement.dataset.theme") == "light"
    press(chrome, "t")
    assert chrome.value("document.documentElement.dataset.theme") == "dark"
    press(chrome, "t")
    press(chrome, "?")
    assert chrome.value("document.getElementById('keys').open")
    chrome.value("document.getElementById('keys').close()")
    press(chrome, "/")
    assert chrome.value("document.activeElement.id") == "filter-name"
    chrome.value("document.activeElement.blur()")
    press(chrome, "Enter")
    assert chrome.until("location.pathname == '/run'")
    assert chrome.until("document.readyState == 'complete' && !!document.querySelector('a[rel=up]')")
    press(chrome, "u")
    assert chrome.until("location.pathname == '/'")


def test_dark_pages_have_dark_figures_and_text_stays_selected(chrome, many):
    opened(chrome, many, "/run?id=run-019", dark=True)
    chrome.value("localStorage.removeItem('undrift-theme')")
    opened(chrome, many, "/run?id=run-019", dark=True)
    assert chrome.until(DRAWN)
    assert chrome.value("document.getElementById('headline-plot')._fullLayout.paper_bgcolor") == "#14171b"
    chrome.value("getSelection().selectAllChildren(document.querySelector('.fact b'))")
    before = chrome.value("getSelection().toString()")
    chrome.value("ask()")
    time.sleep(1.5)
    assert before
    assert chrome.value("getSelection().toString()") == before
    opened(chrome, many, "/")


def test_when_the_server_ends_the_page_says_so_and_stays(chrome, tmp_path):
    made.made_run(tmp_path / "a")
    with servers.watching(str(tmp_path)) as server:
        opened(chrome, server, "/")
        assert chrome.until(DRAWN)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(5) == 0
        assert chrome.until("document.getElementById('connection').textContent.startsWith('not connected')")
        assert chrome.value(ROWS % 1) == ["a"]


def test_markup_in_names_is_shown_as_text(chrome, tmp_path):
    name = "<img src=x onerror=window.hacked=1>"
    made.made_run(tmp_path / name, events=[(1, 0, "late", "<script>window.hacked=1</script>")])
    with servers.watching(str(tmp_path)) as server:
        opened(chrome, server, "/")
        assert chrome.until(DRAWN)
        assert chrome.value(ROWS % 1) == [name]
        chrome.value("document.querySelector('#table a').click()")
        assert chrome.until("location.pathname == '/run' && !!document.getElementById('events')", 60)
        assert "<script>" in chrome.value("document.getElementById('events').textContent")
        assert chrome.value("window.hacked === undefined")
        assert chrome.errors == []


def test_the_page_of_a_preset_fills_while_it_runs(chrome, tmp_path):
    out = tmp_path / "runs" / "five"
    rows = ("FedAvg", "+ASW", "FLOOD")
    cells = [word for row in rows for word in ("--row", row)]
    options = ["--column", "ResNet-8", "--rounds", "20", "--seeds", "2", "--out", str(out), "--quiet"]
    with started("paper", "run", "flood/table5", *cells, *options) as preset:
        end = time.monotonic() + 120
        while not list(out.glob("*/run.sqlite")) and time.monotonic() < end:
            time.sleep(0.1)
        with servers.watching(str(tmp_path / "runs")) as server:
            opened(chrome, server, "/study?id=five")
            chrome.value("window.loadedOnce = true")
            assert chrome.until("!!document.querySelector('#filling tbody .state')", 60)
            assert preset.wait(300) == 0
            assert chrome.until(
                "document.querySelectorAll('#filling tbody .state.finished').length == 6", 60
            )  # two seeds each
            names = "[...document.querySelectorAll('#filling tbody tr')].map(r => r.cells[0].textContent.trim())"
            assert chrome.value(names) == list(rows)
            assert "FLOOD, Table V" in chrome.value("document.getElementById('source').textContent")
            assert chrome.until(
                "(document.getElementById('ours-0') || {textContent: ''}).textContent.includes('72.79')", 60
            )
            claims = chrome.value("document.getElementById('claims').textContent")
            assert "Both together are better than ASW alone" in claims
            assert chrome.value("window.loadedOnce")
            assert chrome.errors == []
            assert chrome.value(ELSEWHERE) == []


def test_the_page_of_a_race_fills_and_says_its_answer(chrome, tmp_path):
    races = loaded("watch_races", LIVE / "test_race.py")
    race = races.made_race(tmp_path / "runs" / "race")
    (race / "advise.json").unlink()
    with servers.watching(str(tmp_path / "runs")) as server:
        opened(chrome, server, "/study?id=race", width=390)
        chrome.value("window.loadedOnce = true")
        cells = (
            "[...document.querySelectorAll('#filling tbody tr')].map(r => [...r.cells].map(c => c.textContent.trim()))"
        )
        assert chrome.value(cells)[2][1:] == ["open", "■ 51.00 (2/10)"]
        assert chrome.until(DRAWN)
        record = made.Record(race / "002-scaffold_lr=0.1-seed0" / "run.sqlite")
        made.add_round(record, 2)
        assert chrome.until(f"{cells}[2][2] == '■ 52.00 (3/10)'")
        record.close()
        sentence = "Nothing speaks against plain averaging yet, " + "and this sentence is long " * 9
        (race / "advise.json").write_text(json.dumps({**races.ANSWER, "sentences": [sentence.strip()]}))
        assert chrome.until("!!document.querySelector('#answer p.state')")
        assert chrome.value("document.querySelector('#answer p').textContent") == sentence.strip()
        assert chrome.value(cells)[1][:2] == ["feddyn(alpha=0.1) lr=0.1", "dropped for budget (heat 1)"]
        assert chrome.until("!!document.querySelector('#heats .js-plotly-plot')")
        assert chrome.value("document.documentElement.scrollWidth <= innerWidth")
        assert chrome.value("window.loadedOnce")
        assert chrome.errors == []
        assert chrome.value(ELSEWHERE) == []


def test_the_demo_opens_its_page_while_it_runs_and_leaves_it_with_the_end(chrome, tmp_path):
    """The server ends with the demo. What the page shows then is the end, not the last look before it."""
    out = tmp_path / "demo"
    command = [*UNDRIFT, "demo", "--watch", "--rounds", "60", "--out", str(out), "--quiet"]
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert demo.stderr
        line = demo.stderr.readline()
        found = re.search(r"watching at http://127\.0\.0\.1:(\d+)/", line)
        assert found, line
        opened(chrome, servers.Server(demo, int(found[1]), line), "/")
        assert chrome.until("!!document.querySelector('#table .state.running')", 60)
        assert demo.poll() is None
        assert demo.wait(300) == 0
        assert chrome.until("document.getElementById('connection').textContent.startsWith('not connected')")
        assert chrome.value("document.querySelectorAll('#table .state.finished').length") == 24
        assert chrome.value("document.querySelectorAll('#table .state.running').length") == 0
    finally:
        if demo.poll() is None:
            demo.kill()
        demo.wait()
        if demo.stderr:
            demo.stderr.close()
