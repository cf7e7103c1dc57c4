"""Clients that have names keep them: in the federation, run.toml, the record, tables, figures and traces."""

from __future__ import annotations

import json
import sqlite3
import tomllib

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.experiment.tables import site_table
from undrift.report import clients as client_figures
from undrift.report import label_distribution, plots
from undrift.report.traces import traces
from undrift.store.record import ClientNames, client_names
from undrift.study.standings import sites_table

SETTINGS = {"rounds": 2, "epochs": 1, "cohort": 1.0, "engine": "inline"}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """An .npz whose samples belong to oslo, berlin and rome."""
    path = tmp_path_factory.mktemp("data") / "mine.npz"
    draw = np.random.default_rng(0)
    owners = np.array(["oslo", "berlin", "rome"])[np.arange(90) % 3]
    np.savez(path, x=draw.normal(size=(90, 4)), y=draw.integers(0, 3, 90), client=owners)
    return path


@pytest.fixture(scope="module")
def run(mine, tmp_path_factory):
    federation = ud.federate(mine, "natural")
    return ud.run("scaffold", federation, out=tmp_path_factory.mktemp("runs") / "named", **SETTINGS)


def test_a_natural_federation_has_the_names_of_the_data(mine):
    federation = ud.federate(mine, "natural")
    assert federation.names == ("berlin", "oslo", "rome")
    assert np.array_equal(federation.rows("oslo"), federation.rows(1))
    with pytest.raises(BadRequest, match="numbered 0 to 2 and called berlin, oslo, rome"):
        federation.rows("paris")
    assert ud.federate(mine, "iid", 3).names == ()


def test_names_follow_their_data_to_the_unseen_clients():
    given = {city: (torch.full((10, 2), float(i)), torch.arange(10) % 2) for i, city in enumerate(["a", "b", "c", "d"])}
    federation = ud.Federation.from_clients(given, unseen=0.5, seed=3)
    for client, name in enumerate(federation.names):
        assert (federation.x[torch.from_numpy(federation.shards[client])] == "abcd".index(name)).all()
    assert sorted(federation.names) == ["a", "b", "c", "d"]


def test_a_refused_client_is_called_by_its_name():
    with pytest.raises(BadRequest, match="oslo has 2 samples but 3 labels"):
        ud.Federation.from_clients({"oslo": (torch.zeros(2, 2), torch.zeros(3, dtype=torch.long))})


def test_the_run_keeps_them_in_its_files_and_its_result(run):
    about = tomllib.loads((run.folder / "run.toml").read_text())["about"]
    assert about["dealt"]["names"] == ["berlin", "oslo", "rome"]
    assert run.rows("SELECT name FROM clients ORDER BY client") == [("berlin",), ("oslo",), ("rome",)]
    assert list(run.summary["sites"]) == ["berlin", "oslo", "rome"]
    own = dict(run.rows("SELECT client, value FROM metrics WHERE stage='L1' AND data='own' AND metric='accuracy'"))
    assert [one["L1"] for one in run.summary["sites"].values()] == [own[client] for client in range(3)]
    x = torch.zeros(1, 4)
    assert torch.equal(run.personal("oslo")(x), run.personal(1)(x))


def test_a_record_of_an_earlier_version_has_no_names():
    db = sqlite3.connect(":memory:")
    assert client_names(lambda query: db.execute(query).fetchall()) == {}
    assert ClientNames({1: "oslo"}).of(1) == "oslo"
    assert ClientNames().of(1) == "client 1"
    assert ClientNames().short(1) == "1"
    assert ClientNames().of(None) == "server"


def test_tables_have_a_line_per_site_and_a_column_per_method():
    rows = [
        {"method": "fedavg", "seed": seed, "sites": {"oslo": {"L1": 0.5 + seed / 10}, "rome": {}}, "stages": {}}
        for seed in (0, 1)
    ]
    rows.append({"method": "ditto", "seed": 0, "sites": {"oslo": {"L1": 0.75}, "rome": {"L1": 1.0}}, "stages": {}})
    assert sites_table(rows) == [
        ["client", "fedavg", "ditto"],
        ["oslo", "55.00", "75.00"],  # the mean of 0.5 and 0.6
        ["rome", "—", "100.00"],
    ]
    assert sites_table([{"method": "fedavg", "seed": 0}]) == []
    assert site_table([("", {f"s{i}": {} for i in range(60)})])[-1][0] == "… 10 more"


def test_a_comparison_and_its_page_show_them(mine, tmp_path):
    done = ud.compare(["fedavg", "fedprox"], ud.federate(mine, "natural"), out=tmp_path / "c", **SETTINGS)
    assert "\nberlin  " in str(done)
    text = done.report().read_text()
    assert "Client by method" in text
    assert "<td>berlin</td>" in text


def test_figures_and_traces_show_them(run):
    assert list(client_figures.weights(run.rows).data[0].y) == ["berlin", "oslo", "rome"]
    assert list(client_figures.trade_off([("x", run.rows)], "L1").data[0].text) == ["berlin", "oslo", "rome"]
    assert list(plots.weights([("x", run.rows)]).data[0].y) == ["berlin", "oslo", "rome"]
    found = traces(run.rows, run.setup.federation)
    against = next(trace for key, trace in found.items() if key.endswith("weight_against"))
    assert list(against.figure.data[0].text) == ["berlin", "oslo", "rome"]
    shown = label_distribution.describe(run.setup.federation)
    assert shown["names"] == ["berlin", "oslo", "rome"]
    assert "\n berlin       " in label_distribution.terminal(run.setup.federation, shown)


def test_the_command_line_takes_the_number_of_clients_from_the_data_and_shows_names(mine, tmp_path, capsys):
    typed = ["run", "--data", str(mine), "--partition", "natural", "--out", str(tmp_path / "r"), "--engine", "inline"]
    assert command([*typed, "--rounds", "2", "--cohort", "1.0", "--json"]) == 0
    out, err = capsys.readouterr()
    assert list(json.loads(out)["sites"]) == ["berlin", "oslo", "rome"]
    assert "\noslo " in err
    assert tomllib.loads((tmp_path / "r" / "run.toml").read_text())["clients"] == 3
    assert command(["show", str(tmp_path / "r")]) == 0
    assert "\noslo " in capsys.readouterr().out
    assert command([*typed[:-3], str(tmp_path / "s"), "--clients", "5"]) == 2  # another number is refused
    assert "the data name 3 clients but 5 were asked for" in capsys.readouterr().err


def test_failures_are_called_by_their_names(mine):
    summary = ud.run("fedavg", ud.federate(mine, "natural"), faults="nan(0.9)", out=False, **SETTINGS).summary
    lost = [failure for failure in summary["failures"] if failure["client"] is not None]
    assert lost
    for failure in lost:
        assert failure["name"] == ("berlin", "oslo", "rome")[failure["client"]]


# ---- wrong labels --------------------------------------------------------------------------------------------------


def test_wrong_labels_of_ones_own_data_are_unknown(mine):
    own = ud.federate(mine, "natural")
    shown = label_distribution.describe(own)
    assert shown["noise_rate"] is None
    assert "wrong labels unknown: nobody has checked" in label_distribution.terminal(own, shown)
    assert "noise rate" not in label_distribution.facts(own, [0, 1])


def test_wrong_labels_that_were_added_are_known(mine):
    noisy = ud.federate(mine, "natural", noise="symmetric(0.5)")
    said = label_distribution.terminal(noisy, label_distribution.describe(noisy))
    assert "% added to those of the data, which are unknown" in said.replace(" per client)", "")
    shipped = ud.federate("digits", "iid", 2)
    assert "wrong labels 0.0 %" in label_distribution.terminal(shipped, label_distribution.describe(shipped))
