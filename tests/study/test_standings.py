"""Ranks, wins and paired differences, checked by hand."""

from __future__ import annotations

import math

import pytest

from undrift.core.errors import BadRequest
from undrift.study.standings import (
    G,
    difference,
    mean_and_std,
    rank_column,
    rank_note,
    ranks,
    results_table,
    shown_difference,
    standings_table,
    win_shares,
)


def row(method, seed, accuracy, **more):
    return {
        "method": method,
        "seed": seed,
        "accuracy": accuracy,
        "seconds": 1.0,
        "stages": {"G": {}, "L1": None, "L2": None},
        **more,
    }


ROWS = [row("a", 0, 0.5), row("b", 0, 0.6), row("c", 0, 0.6), row("a", 1, 0.7), row("b", 1, 0.9), row("c", 1, 0.5)]


def test_equal_numbers_share_a_rank_and_a_win():
    # Seed 0: b and c share ranks 1 and 2, a is third. Seed 1: b, a, c.
    assert ranks(ROWS, G) == {"a": 2.5, "b": 1.25, "c": 2.25}
    assert win_shares(ROWS, G) == pytest.approx({"a": 0.0, "b": 0.75, "c": 0.25})


def test_the_paired_difference_has_students_interval():
    # b - a is 0.1 and 0.2: mean 0.15, s = 0.1/√2, s/√2 = 0.05, t(0.975, 1) = 12.7062.
    mean, low, high = difference(ROWS, "b", "a", G)
    assert mean == pytest.approx(0.15)
    assert high - mean == mean - low == pytest.approx(12.7062 * 0.05, rel=1e-4)
    assert shown_difference((mean, low, high)) == "+15.00 [-48.53, +78.53]"


def test_one_seed_has_a_difference_but_no_interval():
    assert shown_difference(difference(ROWS[:3], "b", "a", G)) == "+10.00"
    assert difference(ROWS[:1], "b", "a", G) is None


def test_only_cells_with_both_methods_are_paired():
    rows = [*ROWS, row("a", 2, 0.1), row("b", 2, None)]
    assert difference(rows, "b", "a", G) == difference(ROWS, "b", "a", G)


def test_mean_and_std_of_the_sample():
    assert mean_and_std([0.5, 0.7]) == f"60.00 ± {100 * math.sqrt(0.02):.2f}"
    assert mean_and_std([0.5]) == "50.00"
    assert mean_and_std([]) == "—"


def test_a_failed_run_is_marked_and_does_not_count():
    failed = row("b", 1, None, failed="it broke")
    rows = [row("a", 0, 0.5), row("b", 0, 0.6), row("a", 1, 0.7), failed]
    assert [line[0] for line in results_table(rows)[1:]] == ["a", "b (1 failed)"]
    assert results_table([row("a", 0, 0.5), {**failed, "seed": 0}])[-1][:2] == ["b", "failed"]
    assert standings_table(rows)[1][0] == "a" or standings_table(rows)[1][0] == "b"


def local(method, accuracy, own):
    stages = {"G": None, "L1": {"acc_local": {"mean": own}}, "L2": None}
    return row(method, 0, accuracy, stages=stages)


def test_methods_are_ranked_by_the_column_asked_for():
    rows = [local("a", 0.9, 0.5), local("b", 0.8, 0.7)]
    assert [line[0] for line in results_table(rows)[1:]] == ["a", "b"]
    assert [line[0] for line in results_table(rows, "L1 Acc(L)")[1:]] == ["b", "a"]
    table = standings_table(rows, "l1 acc(l)")
    assert table[0][3] == "L1 Acc(L) − a"
    assert [line[:4] for line in table[1:]] == [
        ["b", "1.0", "100 %", "+20.00"],
        ["a", "2.0", "0 %", ""],
    ]
    with pytest.raises(BadRequest, match="L3"):
        rank_column(rows, "L3")


def test_methods_without_a_global_model_are_ranked_by_what_all_have():
    rows = [local("a", 0.9, 0.5), local("fedper", None, 0.7), local("local", None, 0.6)]
    assert rank_column(rows) == "L1 Acc(L)"
    assert rank_note(rows) == "Ranked by L1 Acc(L): fedper, local have no global model."
    assert [line[0] for line in standings_table(rows)[1:]] == ["fedper", "local", "a"]
    asked = results_table(rows, "G")  # those without a value come last, by what they have
    assert [line[0] for line in asked[1:]] == ["a", "fedper", "local"]
    assert rank_note(rows, "G") == ""


def test_the_largest_epsilon_stands_beside_the_numbers_it_cost():
    spent = {"privacy": {"epsilon": 2.345, "delta": 1e-5}}
    rows = [row("a", 0, 0.5, privacy={"epsilon": 1.0}), row("a", 1, 0.5, **spent), row("b", 0, 0.6)]
    rows.append(row("c", 0, 0.4, privacy={"epsilon": None}))
    head, *lines = results_table(rows)
    assert [line[head.index("ε")] for line in lines] == ["—", "2.35", "∞"]  # b, a, c
    assert "ε" not in results_table(ROWS)[0]
