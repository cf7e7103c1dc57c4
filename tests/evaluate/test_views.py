"""Views over recorded rows: every published protocol, against numpy on a recorded run and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import undrift as ud
from undrift.evaluate import views


@pytest.fixture(scope="module")
def result(tiny):
    return ud.run("fliu", tiny, model=tiny.model, rounds=12, out=False, cohort=3, evaluate_every=2)


def test_a_curve_is_what_was_recorded(result):
    found = result.curve()
    rows = result.rows(
        "SELECT value FROM metrics WHERE stage='G' AND data='global' AND metric='accuracy' ORDER BY round"
    )
    assert found.rounds.tolist() == list(range(12))
    assert found.clients == (None,)
    assert found.mean.tolist() == [value for (value,) in rows]


def test_the_mean_over_clients_is_over_those_evaluated_in_the_round(result):
    found = result.curve("L2", "own")
    assert found.rounds.tolist() == [1, 3, 5, 7, 9, 11]
    assert found.values.shape == (6, 4)
    assert (np.isnan(found.values).sum(1) == 1).all()  # three of four took part
    assert found.mean == pytest.approx(np.nanmean(found.values, axis=1))
    assert found.std == pytest.approx(np.nanstd(found.values, axis=1))


@pytest.mark.parametrize("count", [10, 50])
def test_the_last_rounds_are_numpys_mean_and_std_of_them(result, count):
    values = result.curve().mean
    found = views.last(values, count)
    assert (found.mean, found.std) == pytest.approx((values[-count:].mean(), values[-count:].std()))
    assert found.count == min(count, 12)
    assert views.all_rounds(values).mean == pytest.approx(values.mean())


def test_the_rolling_std_is_that_of_every_window(result):
    values = result.curve().mean
    assert views.rolling_std(values, 5) == pytest.approx([values[i : i + 5].std() for i in range(8)])
    assert len(views.rolling_std(values, 13)) == 0


def test_the_std_after_convergence_states_where_it_begins():
    values = [0.0, 0.4, 0.8, 0.81, 0.79, 0.8, 0.81, 0.79]
    # windows of 2 have means 0.2 0.6 0.805 0.8 0.795 0.805 0.8: within 0.01 of the last from position 2 on
    assert views.converged_at(values, 2, 0.01) == 2
    start, std = views.std_after_convergence(values, 2, 0.01)
    assert (start, std) == (2, pytest.approx(np.std(values[2:])))
    assert views.std_after_convergence(values, 9) is None


def test_rounds_until_epsilon_count_from_one_and_may_never_come():
    assert views.rounds_until([0, 1, 2], [0.2, 0.6, 0.5], 0.5) == 2
    assert views.rounds_until([4, 9], [0.2, 0.9], 0.5) == 10  # evaluated every fifth round
    assert views.rounds_until([0, 1], [0.2, 0.3], 0.5) is None


def test_clients_below_epsilon_and_their_rounds_by_hand():
    nan = np.nan
    curve = views.Curve(np.array([0, 1, 2]), (0, 1, 2), np.array([[0.2, 0.9, nan], [0.6, 0.9, 0.4], [0.7, nan, 0.4]]))
    assert views.share_below(curve, 0.5) == pytest.approx([1 / 2, 1 / 3, 1 / 2])
    errors = views.Curve(curve.rounds, curve.clients, -curve.values)  # of errors the larger ones are worse
    assert views.share_below(errors, -0.5, lower=True) == pytest.approx([1 / 2, 1 / 3, 1 / 2])
    assert views.clients_rounds_until(curve, 0.5) == ((2 + 1) / 2, 1)


def test_over_seeds_is_the_sample_std():
    found = views.over_seeds([0.1, 0.2, 0.3])
    assert (found.mean, found.std) == (pytest.approx(0.2), pytest.approx(0.1))
    assert views.over_seeds([0.4]).std == 0


def test_the_table_of_protocols_names_stage_data_and_window(result):
    table = views.protocols(result.rows, (0.5,))
    assert table[0] == ["protocol", "G", "L1 Acc(L)", "L2 Acc(L)"]
    names = [line[0] for line in table]
    assert "last 50 evaluated rounds" in names
    assert "rounds until 0.5" in names
    assert any("10-round" in name for name in names)
    assert all(len(line) == 4 for line in table)
