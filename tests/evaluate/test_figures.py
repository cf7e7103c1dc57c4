"""Figures say what was recorded: one mark per client, the mean as the line, the surface as it was walked."""

from __future__ import annotations

import numpy as np
import pytest

import undrift as ud
from undrift.cli import command
from undrift.evaluate.views import share_below
from undrift.report import clients, pictures
from undrift.report.run_page import sections


@pytest.fixture(scope="module")
def result(tiny):
    return ud.run("flood(T=1)+fliu", tiny, model=tiny.model, rounds=3, out=False, cohort=1.0, evaluate_every=1,
                  diagnose="drift+landscape(points=5)+confusion+embedding+gradients+hessian")  # fmt: skip


def test_trajectories_have_the_mean_as_line_and_one_std_as_band(result):
    fig = result.plot("accuracy")
    found = result.curve("L2", "own")
    line = next(trace for trace in fig.data if trace.name and trace.name.startswith("L2: after training, own"))
    assert line.y == pytest.approx(found.mean)
    band = next(trace for trace in fig.data if trace.legendgroup == line.name and trace.fill)
    assert band.y[:3] == pytest.approx(found.mean + found.std)


def test_the_scatter_has_a_mark_per_client_at_its_two_accuracies(result):
    (trace,) = clients.trade_off([("one", result.rows)], "L1").data
    own, whole = (clients.last_values(result.rows, "L1", data) for data in ("own", "global"))
    assert list(zip(trace.x, trace.y)) == [(whole[k], own[k]) for k in range(4)]


def test_clients_below_a_threshold_are_the_view_of_it(result):
    (trace,) = clients.below([("one", result.rows)], 0.9).data
    assert trace.y == pytest.approx(share_below(result.curve("L2", "own"), 0.9))


def test_weights_and_drift_are_drawn_per_client_and_round(result):
    (weights,), (drift,) = clients.weights(result.rows).data, clients.drift(result.rows).data
    assert np.array(weights.z).shape == np.array(drift.z).shape == (4, 3)
    assert np.array(weights.z, dtype=float).sum(0) == pytest.approx(np.ones(3))


def test_pictures_are_drawn_of_what_was_recorded_and_left_out_otherwise(result, tiny):
    assert np.array(pictures.landscape(result.rows).data[0].z).shape == (5, 5)
    shares = np.array(pictures.confusion(result.rows).data[0].z)
    assert shares.sum(1) == pytest.approx(np.ones(3))
    assert len(pictures.embedding(result.rows).data) == 6  # before and after, three classes
    bare = ud.run("fedavg", tiny, model=tiny.model, rounds=1, out=False)
    assert pictures.landscape(bare.rows) is pictures.confusion(bare.rows) is pictures.embedding(bare.rows) is None
    names = [name for name, _ in sections("fedavg", bare.rows, bare.summary, (0.5,))]
    assert "stages" in names
    assert "landscape" not in names


def test_show_prints_the_protocols_and_writes_a_page(tmp_path, capsys):
    words = ["run", "--method", "fliu", "--partition", "pathological(2)", "--cohort", "1.0", "--rounds", "3", "--quiet",
             "--diagnose", "drift+confusion+landscape(points=3)", "--unseen", "0.1", "--out", str(tmp_path / "run")]  # fmt: skip
    assert command(words) == 0
    assert command(["show", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().out
    for words in (
        "last 50 evaluated rounds",
        "rounds until 0.9",
        "2 unseen clients",
        "L1 Acc(G): on receipt, whole test set",
    ):
        assert words in said
    page = (tmp_path / "page.html").read_text()
    for name in ("stages", "scatter-l1", "scatter-l2", "below-0-95", "weights", "drift", "confusion", "landscape"):
        assert f"id='{name}'" in page
