"""Who may ask, and for what, without a server: headers, redirects, links, and pages that name no class."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytestmark = pytest.mark.extras
spec = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
assert spec
assert spec.loader
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


def request(path: str = "/", host: str = "127.0.0.1", **query: str):
    from starlette.requests import Request

    headers = [(b"host", host.encode())]
    return Request(
        {"type": "http", "method": "GET", "path": path, "query_string": urlencode(query).encode(), "headers": headers}
    )


def live_of(folder: Path):
    from undrift.live.app import Live
    from undrift.live.index import Index

    index = Index([folder])
    index.poll()
    return Live(index, "runs")


@pytest.mark.parametrize(
    "host",
    [
        "[::1]evil.example", "[::1", "::1", "[]", "localhost:80:evil.example", "127.0.0.1:port", "evil.example@localhost",
        "localhost@evil.example", "localhost#evil.example", "127.0.0.1, evil.example", "127.0.0.1.", "2130706433", "",
    ],
)  # fmt: skip
def test_a_host_header_that_only_begins_or_ends_like_ours_is_refused(host):
    from undrift.live.guard import Guard

    assert Guard(None).refusal(request(host=host)).status_code == 421


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8420", "127.0.0.1:", "LocalHost:8420"])
def test_ours_are_known_with_a_port_and_without(host):
    from undrift.live.guard import Guard

    assert Guard(None).refusal(request(host=host)) is None


def test_the_way_without_the_token_stays_on_this_host():
    """`//name/` in a Location header is another host."""
    from undrift.live.guard import Guard

    answer = Guard(None, token="secret").refusal(request("//evil.example/", token="secret"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/evil.example/")


def test_a_page_with_one_sentence_has_its_style_and_a_way_back_only_where_there_is_one():
    from undrift.live.guard import sentence

    refused, missing = sentence(403, "No <token>."), sentence(404, "Nothing here.")
    assert b"color-scheme:light dark" in refused.body
    assert b"No &lt;token&gt;." in refused.body
    assert b"href='/'" not in refused.body
    assert b"href='/'" in missing.body


def test_a_deployment_has_one_page_under_either_address_and_names_no_class(tmp_path):
    deploy = {"sites": ["oslo"], "labels": ["healthy", "ill"], "shape": [1, 8, 8]}
    made.made_run(tmp_path / "d", deploy=deploy)
    live = live_of(tmp_path)
    for name in ("run", "deployment"):
        _, sections = live.made({"page": name, "id": "d"})
        assert [section[0] for section in sections] == ["facts", "sites", "metrics", "events"]
        assert "healthy" not in str(sections)
    answer = asyncio.run(live.label_counts(request(id="d")))
    assert json.loads(answer.body) == {"sentence": "There is no figure of this run."}


def test_data_of_a_broken_folder_are_not_dealt(tmp_path):
    folder = made.made_run(tmp_path / "a")
    (folder / "run.toml").rename(tmp_path / "elsewhere.toml")
    (folder / "run.toml").symlink_to(tmp_path / "elsewhere.toml")
    answer = asyncio.run(live_of(tmp_path).label_counts(request(id="a")))
    assert json.loads(answer.body) == {"sentence": "There is no figure of this run."}


@pytest.mark.parametrize("name", ["advise.toml", "advise.json", "compare.toml", "rows.jsonl"])
def test_a_study_whose_own_files_are_links_is_not_read(tmp_path, name):
    folder = tmp_path / "runs" / "study"
    made.made_run(folder / "00-fedavg-seed0")
    (folder / "compare.toml").write_text('seeds = [[0, 0]]\n[[methods]]\nmethod = "fedavg"\n')
    (tmp_path / "secret").write_text('budget = "outside"\n')
    assert list(live_of(tmp_path / "runs").index.studies) == ["study"]
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    index = live_of(tmp_path / "runs").index
    assert not index.studies
    assert list(index.runs) == ["study/00-fedavg-seed0"]
