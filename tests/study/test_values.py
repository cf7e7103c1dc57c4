"""Numbers of a run: windows are shares of it, never a single last round, and every `take` can be checked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from undrift.core.headline import ACCURACY, Headline
from undrift.papers import papers, results, scales
from undrift.papers.values import Value, measured, of_curve, value_of

CURVE = [0.1 * n for n in range(1, 11)]


def query(curve, clients=(None,)):
    return lambda sql, values: [
        (r, c, v) for r, value in enumerate(curve) for c, v in zip(clients, np.atleast_1d(value))
    ]


def test_a_shorter_run_averages_the_same_share():
    value = Value(window=0.25)
    assert value.rounds(200) == slice(150, 200)
    assert value.rounds(40) == slice(30, 40)
    assert Value(window=(0.0, 0.2)).rounds(100) == slice(0, 20)
    assert Value(window=0).rounds(7) == slice(0, 7)


def test_a_value_of_one_client_is_its_own_curve():
    two = query([[0.1, 0.5], [0.2, 0.7]], clients=(3, 4))
    assert measured(two, Value(stage="L1", data="own", client=4)) == pytest.approx([0.6, 0.1])
    assert measured(two, Value(stage="L1", data="own", client=3, take="highest"))[0] == 0.2
    assert measured(two, Value(stage="L1", data="own", client=5)) is None
    assert Value(client=4).kept_curve(ACCURACY) is None


def test_no_window_is_a_single_round_of_a_longer_curve():
    value = Value(window=0.025)
    assert value.rounds(2000) == slice(1950, 2000)
    assert value.rounds(100) == slice(95, 100)  # its share would be two or three
    assert (value.widened(100), value.widened(2000)) == (5, None)
    assert Value(window=(0.0, 0.01)).rounds(100) == slice(0, 5)
    assert value.rounds(3) == slice(0, 3)


@pytest.mark.parametrize("name", papers.names())
def test_every_preset_has_shares_and_says_where_they_are_not_the_papers(name):
    preset = papers.load(name)
    for value in preset.values:
        every = 1 if value.stage in ("G", "train") else preset.options["evaluate_every"]
        assert (
            value.rounds(preset.options["rounds"] // every).stop - value.rounds(preset.options["rounds"] // every).start
            >= 5
        )
        assert value.window == 0 or max(np.atleast_1d(value.window)) < 1
    asked = scales.scaled(preset, "quick", rounds=6, seeds=1)
    told = "\n".join(asked.reductions)
    for value in preset.values:
        if value.window != 0 and value.stage == "G":
            assert f"{value.name}: 5 of 6 evaluated rounds instead of" in told


def test_means_and_deviations_by_hand():
    assert measured(query(CURVE), Value(window=0.5)) == pytest.approx([0.8, np.std(CURVE[5:])])
    assert measured(query(CURVE), Value(window=(0.0, 0.5)))[0] == pytest.approx(0.3)
    assert measured(query(CURVE), Value(window=0))[0] == pytest.approx(0.55)
    assert measured(query(CURVE), Value(window=0.5, take="std"))[0] == pytest.approx(np.std(CURVE[5:]))
    # every two neighbours differ by 0.1: their deviation is 0.05
    assert measured(query(CURVE), Value(window=0, take="rolling_std", neighbours=2))[0] == pytest.approx(0.05)
    assert measured(lambda *_: [], Value()) is None
    assert of_curve(CURVE, Value(window=0.5)) == measured(query(CURVE), Value(window=0.5))


def test_rounds_until_a_target():
    assert measured(query(CURVE), Value(take="rounds_until", target=0.35, factor=1.0))[0] == 4
    assert measured(query(CURVE), Value(take="rounds_until", target=2.0))[0] == 11  # never, in ten rounds
    both = [[0.2, 0.9], [0.6, 0.9], [0.6, 0.9]]  # client 0 needs two rounds, client 1 one; 0.8: never (4) and one
    assert measured(query(both, (0, 1)), Value(take="clients_until", target=0.5, factor=1.0))[0] == 1.5
    assert measured(query(both, (0, 1)), Value(take="clients_until", target=0.8, factor=1.0))[0] == 2.5
    assert measured(query(both, (0, 1)), Value(window=0, take="clients_below", target=0.5))[0] == pytest.approx(1 / 6)


def test_a_value_is_the_headline_unless_it_names_a_metric():
    rmse = Headline("rmse", "lower", "RMSE", False)
    assert value_of({}, ACCURACY) == Value()
    assert value_of({"name": "loss", "metric": "loss"}, rmse) == Value("loss", metric="loss")
    assert value_of({"note": "weighting.weight"}, rmse) == Value(note="weighting.weight")
    assert value_of({"window": 0.5}, rmse) == Value(metric="rmse", factor=1.0, better="lower", window=0.5)
    assert [value_of({}, rmse).kept_curve(one) for one in (rmse, ACCURACY)] == ["curve", None]


def test_targets_of_an_error_are_reached_from_above():
    errors, lower = [1 - value for value in CURVE], {"metric": "rmse", "factor": 1.0, "better": "lower"}
    for take in ("rounds_until", "clients_until"):
        found = measured(query(errors, (0,)), Value(take=take, target=0.65, **lower))
        assert found == measured(query(CURVE, (0,)), Value(take=take, target=0.35, factor=1.0))
    assert measured(query(errors), Value(take="rounds_until", target=-1.0, **lower))[0] == 11  # never
    both = [[0.2, 0.9], [0.6, 0.9], [0.6, 0.9]]
    worse = measured(query(both, (0, 1)), Value(window=0, take="clients_below", target=0.5, **lower))[0]
    assert worse == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"window": 10}, "share of the run"),
        ({"window": (0.5, 0.2)}, "share of the run"),
        ({"take": "median"}, "take must be"),
        ({"take": "rounds_until"}, "need a target"),
        ({"target": 0.5}, "need a target"),
        ({"better": "less"}, "higher or lower"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong, why):
    with pytest.raises(ValueError, match=why):
        Value(**wrong)


def test_a_results_line_is_read_with_the_windows_of_today():
    """The last round is 0.2, the last quarter 0.6: the order of methods must not hang on one round."""
    preset = papers.load("bound/table1")
    row = {"curve": [0.5] * 30 + [0.6] * 9 + [0.2], "values": {"G": [0.2, 0.0]}}
    value = preset.values[0]
    assert results.recomputed(preset, row) == {value.name: pytest.approx([0.56, 0.12])}


def test_extremes_and_correlations_by_hand():
    """Three clients, two rounds: means 0.2, 0.5, 0.4 against 3, 1, 2, which is the reversed order."""
    rows = [(0, 0, 0.1), (0, 1, 0.5), (0, 2, 0.4), (1, 0, 0.3), (1, 1, 0.5), (1, 2, 0.4)]
    weights = [(round, client, json.dumps(value)) for round, client, value in rows]
    distances = [(0, 0, 3.0), (0, 1, 1.0), (0, 2, 2.0)]

    def asked(sql, values):
        return weights if "FROM notes" in sql else distances if values[2] == "label_distance" else rows

    assert measured(asked, Value(metric="accuracy+accuracy", window=0))[0] == pytest.approx(2 * (1.0 + 1.2) / 6)
    noted = {"note": "weighting.weight", "window": 0}
    assert measured(asked, Value(take="lowest", **noted)) == [0.1, 0.0]
    assert measured(asked, Value(take="highest", window=0)) == [0.5, 0.0]
    assert measured(asked, Value(take="mean", **noted))[0] == pytest.approx((1.0 + 1.2) / 6)
    against = Value(take="correlation", against="G/train/label_distance", **noted)
    assert measured(asked, against) == [pytest.approx(-1.0), 0.0]
    distances[:] = [(0, client, 1.0) for client in range(3)]
    assert measured(asked, against) is None
    with pytest.raises(ValueError, match="says what it is against"):
        Value(take="correlation")
