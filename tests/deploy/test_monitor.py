"""A run while it goes on: who is awaited, the stream for alerts, and round numbers that agree."""

from __future__ import annotations

import json
import re

import pytest

from undrift.core.errors import RunFailed
from undrift.deploy import monitor, status
from undrift.deploy.monitor import Monitor


def lines(deployment, kind=None):
    found = [json.loads(line) for line in (deployment.run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if kind in (None, line["kind"])]


def test_status_names_who_is_awaited_now(deploy):
    """Turin's reply to round 1 is held back, and the status is read while the server waits for it."""
    deployment = deploy(rounds=3, deadline=5.0)
    seen = []
    deployment.change_reply(98, 1, lambda reply: None)
    fetch = deployment.transport.fetch

    def watch(message_ids):
        found = fetch(message_ids)
        if not found and deployment.transport.change_reply is not None:
            seen.append(status.status(str(deployment.run)))
            deployment.transport.change_reply = None
            withheld = [message_id for message_id in message_ids]
            deployment.transport.replies |= {message_id: "it is late" for message_id in withheld}
        return found

    deployment.transport.fetch = watch
    deployment.serve()
    (report,) = seen
    assert report["running"] is True
    assert (report["awaited"]["round"], report["awaited"]["sites"]) == (1, ["turin"])
    assert 0 < report["awaited"]["until"] - report["awaited"]["since"] <= 5.001
    assert "awaited now for round 1: turin; since " in status.page(report)
    after = status.status(str(deployment.run))
    assert (after["running"], after["awaited"]) == (False, None)
    assert "all rounds are done; the server does not run now" in status.page(after)


def test_in_the_handshake_the_missing_sites_are_awaited(deploy):
    deployment = deploy(rounds=1, wait=1.0)  # the handshake looks twice, also on a busy machine
    deployment.transport.online.discard(99)
    seen = []
    nodes = deployment.transport.nodes

    def watch():
        seen.append(monitor.awaited_now(deployment.run))
        return nodes()

    deployment.transport.nodes = watch
    deployment.serve()
    assert (None, ["oslo"]) in [(state["round"], state["sites"]) for state in seen if state]


def test_round_numbers_agree_between_log_status_stream_and_record(deploy):
    deployment = deploy(rounds=3, quorum=1)
    deployment.change_reply(99, 2, lambda reply: "lost")
    deployment.serve()
    logged = [line for line in deployment.log if line.startswith("round ")]
    assert [int(re.match(r"round (\d+): ", line)[1]) for line in logged] == [0, 1, 2]
    assert [line[line.index("(") :] for line in logged] == ["(1 of 3 done)", "(2 of 3 done)", "(3 of 3 done)"]
    assert deployment.log[-1].startswith("finished: 3 of 3 rounds done")
    report = status.status(str(deployment.run))
    assert [site["last_round"] for site in report["sites"]] == [2, 1, 2]
    assert report["sites"][1]["last_trouble"] == "broken in round 2"
    rounds = lines(deployment, "round")
    assert [line["round"] for line in rounds] == [0, 1, 2]
    assert rounds[2]["left_out"] == {"oslo": "broken"}
    assert rounds[2]["replied"] == ["berlin", "turin"]
    assert [r for r, kind in deployment.kinds(1)] == [2]


def test_the_stream_tells_a_session_from_start_to_end(deploy):
    deployment = deploy(rounds=2, evaluate_every=2)
    deployment.serve()
    assert next(line["kind"] for line in lines(deployment)) == "start"
    assert lines(deployment, "start")[0]["sites"] == ["berlin", "oslo", "turin"]
    assert {(line["round"], line["site"]) for line in lines(deployment, "reply")} == {
        (round, site) for round in (0, 1, 2) for site in ("berlin", "oslo", "turin")
    }  # 2: the evaluation after the last round
    assert {line["detail"].split()[0] for line in lines(deployment, "event")} == {"berlin", "oslo", "turin"}  # joined
    (end,) = lines(deployment, "end")
    assert (end["state"], end["done"], end["detail"]) == ("finished", 2, None)
    assert (deployment.run / "metrics.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_run_that_fails_says_so_in_the_stream_and_a_resumed_one_appends(deploy):
    deployment = deploy(rounds=2)
    online, deployment.transport.online = deployment.transport.online, set()
    with pytest.raises(RunFailed):
        deployment.serve()
    (end,) = lines(deployment, "end")
    assert (end["state"], end["detail"][:11]) == ("failed", "0 of 3 site")
    with open(deployment.run / "metrics.jsonl", "a") as file:
        file.write('{"kind": "awaiting", "rou')  # torn by a crash
    deployment.transport.online = online
    deployment.serve()
    text = (deployment.run / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "start"' in line for line in text) == 2
    assert json.loads(text[-1])["state"] == "finished"


def test_the_prometheus_file_has_the_latest_values(deploy, tmp_path):
    deployment = deploy(rounds=2, quorum=1)
    deployment.change_reply(99, 1, lambda reply: "lost")
    deployment.serve(prometheus=str(tmp_path / "undrift.prom"))
    values = dict(
        line.rsplit(" ", 1) for line in (tmp_path / "undrift.prom").read_text().splitlines() if line[0] != "#"
    )
    assert values["undrift_running"] == "0"
    assert (values["undrift_rounds_done"], values["undrift_rounds_planned"]) == ("2", "2")
    assert values['undrift_site_failures_total{site="oslo"}'] == "1"
    assert values['undrift_site_failures_total{site="berlin"}'] == "0"
    assert values['undrift_site_replies_total{site="berlin"}'] == "3"  # two rounds and the last evaluation
    assert values['undrift_site_awaited{site="turin"}'] == "0"
    assert not list(tmp_path.glob("*.part"))


def test_a_prometheus_file_in_no_folder_is_refused_before_the_run(deploy):
    deployment = deploy(rounds=1)
    with pytest.raises(Exception, match=r"prometheus must be a file in a folder that exists, not /nowhere/x\.prom"):
        deployment.serve(prometheus="/nowhere/x.prom")
    assert not deployment.run.exists()


def test_a_monitor_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Monitor().session() as quiet:
        quiet.awaiting(0, ["berlin"], 1.0)
        quiet.reply(0, "berlin", 0.1, None)
    assert list(tmp_path.iterdir()) == []
