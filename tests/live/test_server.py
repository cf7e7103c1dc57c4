"""`undrift watch` as a process: who may ask, for what, and how it ends. One test per rule."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from undrift.cli import command

pytestmark = pytest.mark.extras
spec = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
assert spec
assert spec.loader
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
MARKUP = "<img src=x onerror=alert(1)>&'\""


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    said: str

    def ask(
        self, path: str, host: str | None = None, method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """(status, headers, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body

    def events(self, query: str, count: int = 1) -> list[dict]:
        """The first events of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/events?{query}")
        answer, found = connection.getresponse(), []
        while len(found) < count:
            line = answer.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
        answer.close()  # it holds the socket of a stream that does not end
        connection.close()
        return found


@contextmanager
def watching(*arguments: str) -> Iterator[Server]:
    run = [
        sys.executable,
        "-c",
        "from undrift.cli import main; main()",
        "watch",
        "--no-browser",
        "--port",
        "0",
        *arguments,
    ]
    process = subprocess.Popen(run, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    said = process.stderr.readline()
    found = re.search(r":(\d+)/", said)
    assert found, said + process.stderr.read()
    try:
        yield Server(process, int(found[1]), said)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("watched")
    made.made_run(place / "runs" / "good", events=[(2, 0, "late", f"{MARKUP} was late")])
    made.made_run(place / "runs" / "<b>bold", method="fedprox(mu=0.1)", done=3)
    made.made_run(place / "runs" / "c" / "00-fedavg-seed0")
    (place / "runs" / "c" / "compare.toml").write_text('seeds = [[0, 0]]\n[[methods]]\nmethod = "fedavg"\n')
    deploy = {
        "sites": ["oslo", "turin"],
        "labels": ["healthy", "ill"],
        "shape": [1, 8, 8],
        "quorum": 2,
        "deadline": 60.0,
    }
    made.made_run(place / "runs" / "d", deploy=deploy, events=[(1, 1, "late", f"turin did not reply {MARKUP}")])
    made.made_run(place / "secret")
    (place / "runs" / "link").symlink_to(place / "secret")
    return place


@pytest.fixture(scope="module")
def server(folder) -> Iterator[Server]:
    with watching(str(folder / "runs")) as one:
        yield one


def test_all_pages_are_there_and_say_that_nothing_may_be_loaded_from_elsewhere(server):
    for path in ("/", "/run?id=good", "/study?id=c", "/deployment?id=d"):
        status, headers, body = server.ask(path)
        assert status == 200, path
        assert "<main" in body
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not re.search(r"(src|href)=['\"]?(https?:)?//", body)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "", "10.0.0.7", "[::2]"]
)
def test_another_host_header_is_refused(server, host):
    """DNS rebinding: the browser is led here under a name of the attacker."""
    for path in ("/", "/events?page=runs", "/static/page.js", "/labels?id=good"):
        status, _, body = server.ask(path, host=host or " ")
        assert status == 421
        assert "good" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:99"])
def test_our_own_names_are_known(server, host):
    assert server.ask("/", host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/run?id=../secret", "/run?id=..%2Fsecret", "/run?id=/etc", "/run?id=link", "/run?id=", "/run", "/study?id=good",
        "/static/../secret/run.toml", "/static/..%2f..%2fsecret%2frun.toml", "/static/live.py", "/secret/run.toml",
        "/runs/good/run.sqlite", "/deployment?id=../secret", "/labels?id=../secret", "/run?id=good%00",
    ],
)  # fmt: skip
def test_a_path_outside_the_folder_is_refused(server, path):
    status, _, body = server.ask(path)
    assert status == 404
    assert "fedavg" not in body


def test_events_of_what_is_not_here_say_so(server):
    (event,) = server.events("page=run&id=../secret")
    assert "It is gone" in event["quick"]
    assert event["figures"] == {}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server, method):
    assert server.ask("/", method=method)[0] == 405


def test_markup_in_names_and_notes_is_text(server):
    body = server.ask("/")[2]
    assert "&lt;b&gt;bold" in body
    assert "<b>bold" not in body
    for query in ("page=run&id=good", "page=deployment&id=d"):
        for event in server.events(query, 2):
            text = event.get("quick", "") + event.get("page", "")
            assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in server.events("page=run&id=good", 2)[1]["page"]


def test_markup_in_the_names_of_a_figure_is_text(server):
    """plotly would take `<b>` in a line's name for markup."""
    figures = server.events("page=runs&select=%3Cb%3Ebold%0Agood")[0]["figures"]
    names = {line["name"] for line in figures["lines"]["data"]}
    assert names == {"fedprox(mu=0.1)", "fedavg"}
    from undrift.report.page import titled
    from undrift.report.plots import lines

    _, shown = titled(lines("t", "x", "y", [("<b>a</b> & b", 0, [1], [2])]))
    assert shown["data"][0]["name"] == "&lt;b&gt;a&lt;/b&gt; &amp; b"


def test_a_control_room_sees_no_class(server):
    for event in server.events("page=deployment&id=d", 2):
        assert "healthy" not in json.dumps(event)
    body = server.ask("/deployment?id=d")[2]
    assert "turin" in body
    assert "healthy" not in body


def test_another_host_than_this_machine_needs_a_token(folder, capsys):
    assert command(["watch", str(folder / "runs"), "--host", "0.0.0.0"]) == 2
    said = capsys.readouterr().err
    assert "--token" in said
    assert len(said.splitlines()) == 1


def test_with_a_token_only_who_knows_it_sees_anything(folder):
    with watching(str(folder / "runs"), "--host", "0.0.0.0", "--token") as server:
        token = re.search(r"token=(\S+)", server.said)[1]
        assert len(token) >= 20
        for path in ("/", "/run?id=good", "/events?page=runs", "/static/page.js", "/?token=wrong", "/?token="):
            status, _, body = server.ask(path)
            assert status == 403
            assert "token is missing or wrong" in body
            assert "good" not in body
        status, headers, _ = server.ask(f"/run?id=good&token={token}")
        assert (status, headers["location"]) == (303, "/run?id=good")
        cookie = headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert server.ask("/", Cookie=cookie.partition(";")[0])[0] == 200
        assert server.ask("/", Cookie=cookie.partition(";")[0] + "x")[0] == 403
        assert server.ask("/", host="evil.example", Cookie=cookie.partition(";")[0])[0] == 421


def test_control_c_ends_it_at_once_with_pages_open(folder):
    with watching(str(folder / "runs")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/events?page=runs")
        answer = connection.getresponse()
        answer.readline()
        server.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        code = server.process.wait(10)
        assert time.monotonic() - began < 3
        assert code == 0
        assert "Traceback" not in server.process.stderr.read()
        answer.close()
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_open_page_is_left_with_what_was_there_at_the_end(tmp_path, number):
    with watching(str(tmp_path)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/events?page=runs")
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        made.made_run(tmp_path / "at-the-last-moment")
        server.process.send_signal(number)
        rest = answer.read().decode()
        assert server.process.wait(10) == 0
        assert "at-the-last-moment" in rest
        connection.close()


def test_folders_that_cannot_be_read_any_more_end_it_with_a_sentence():
    import asyncio

    import uvicorn

    from undrift.core.errors import RunFailed
    from undrift.live.app import Live, application
    from undrift.live.serve import until_stopped

    class Gone:
        version, runs, studies = 0, {}, {}

        def poll(self):
            raise PermissionError(13, "denied", "runs")

    live = Live(Gone(), "title")
    server = uvicorn.Server(uvicorn.Config(application(live), log_level="critical", lifespan="off", ws="none"))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        with pytest.raises(RunFailed, match=r"the folders cannot be read any more: .*denied"):
            asyncio.run(until_stopped(server, live, bound))
    assert server.force_exit
    live.labels.stop()


def test_a_port_in_use_is_one_sentence(folder, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert command(["watch", str(folder), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 cannot be used" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("port", ["-1", "70000", "many"])
def test_a_port_that_is_none_is_one_sentence(folder, capsys, port):
    assert command(["watch", str(folder), "--port", port]) == 2
    assert "--port" in capsys.readouterr().err


def test_a_host_that_is_none_is_one_sentence(folder, capsys):
    assert command(["watch", str(folder), "--host", "no.such.host.example", "--token"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_without_runs_is_a_page_that_says_so_and_fills(tmp_path):
    with watching(str(tmp_path)) as server:
        assert "There are no runs in" in server.ask("/")[2]
        made.made_run(tmp_path / "first", done=3)
        end = time.monotonic() + 10
        while "first" not in (body := server.ask("/")[2]) and time.monotonic() < end:
            time.sleep(0.1)
        assert "first" in body


def test_over_ssh_it_prints_the_tunnel(folder, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    monkeypatch.setenv("USER", "ada")
    with watching(str(folder / "runs")) as server:
        assert server.process.stderr.readline() == (
            f"from your own machine: ssh -N -L {server.port}:127.0.0.1:{server.port} ada@10.0.0.2, then open that address there\n"
        )


def test_the_server_does_not_import_torch(folder, server):
    """Its memory would be three times as much."""
    server.events("page=run&id=good", 2)
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in maps


def test_samples_per_client_and_class_are_those_of_the_run(tmp_path, capsys):
    arguments = ["--partition", "pathological(2)", "--clients", "5"]
    assert command(["run", *arguments, "--rounds", "1", "--out", str(tmp_path / "a"), "--quiet"]) == 0
    capsys.readouterr()
    assert command(["data", "show", "digits", "pathological(2)", "--clients", "5", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["class_counts"]
    with watching(str(tmp_path)) as server:
        status, _, body = server.ask("/labels?id=a")
        assert status == 200
        (marks,) = json.loads(body)["data"]
        assert len(marks["text"]) == sum(number > 0 for row in counts for number in row)
        assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
