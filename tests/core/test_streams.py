"""Every draw is a function of (seed, purpose, round, client); who takes part does not depend on the method."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.core.streams import key, numpy_stream, torch_stream
from undrift.round import selection
from undrift.testing import run_parts


def test_the_same_key_gives_the_same_draws():
    assert torch.equal(
        torch.rand(9, generator=torch_stream(1, "a", 2, 3)), torch.rand(9, generator=torch_stream(1, "a", 2, 3))
    )
    assert np.array_equal(numpy_stream(1, "a", 2).random(9), numpy_stream(1, "a", 2).random(9))


def test_every_part_of_the_key_counts():
    keys = [key(0, "a", 1, 2), key(1, "a", 1, 2), key(0, "b", 1, 2), key(0, "a", 2, 2), key(0, "a", 1, 3), key(0, "a", 12),
            key(0, "a/1", 2), key(0, "a", 1), key(0, "a", -1, 2)]  # fmt: skip
    assert len({k for k in keys}) == len(keys) - 1  # "a/1" at 2 is written like "a" at 1, 2: purposes have no slash
    assert all(0 <= k < 2**63 for k in keys)


def test_a_key_is_the_same_on_every_machine():
    assert key(0, "cohort", 5) == 8987398098997395676


@pytest.mark.parametrize(
    ("cohort", "clients", "size"),
    [(0.5, 20, 10), (0.1, 5, 1), (0.01, 5, 1), (1.0, 7, 7), (3, 7, 3), (0.25, 10, 3), (0.35, 10, 4), (7, 7, 7)],
)
def test_a_cohort_is_a_share_with_a_decimal_point_and_a_number_without(cohort, clients, size):
    chosen = selection.Uniform(cohort).choose(numpy_stream(0, "cohort", 0), clients)
    assert len(chosen) == size
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(clients))


@pytest.mark.parametrize("cohort", [0, 0.0, -1, 2.0, 1.01, 21, float("nan"), True])
def test_a_cohort_that_nobody_can_have_is_refused(cohort):
    with pytest.raises(BadRequest, match="cohort"):
        selection.Uniform(cohort).size(20)


def test_probability_never_gives_an_empty_cohort():
    chosen = [selection.Probability(0.02).choose(numpy_stream(0, "cohort", t), 5) for t in range(50)]
    assert all(chosen)
    with pytest.raises(BadRequest):
        selection.Probability(0.0)


def test_a_list_is_always_the_same_clients_and_they_exist():
    assert selection.List((3, 1, 3)).choose(None, 5) == [1, 3]
    for wrong in ((), (5,), (-1,), (1.0,)):
        with pytest.raises(BadRequest, match="client numbers"):
            selection.List(wrong).choose(None, 5)


def cohorts(outcome):
    return [json.loads(text) for (text,) in outcome.store.record.all("SELECT cohort FROM rounds ORDER BY round")]


METHODS = ("fedavg", "scaffold", "flood(T=1)", "fedmr(T1=0)", "fedfomo", "fedrep", "fliu", "feddyn@bound")


def test_cohorts_initial_model_and_data_do_not_depend_on_the_method(tiny):
    runs = [run_parts(name, tiny, cohort=0.5, rounds=4) for name in METHODS]
    assert len(set(map(str, map(cohorts, runs)))) == 1
    assert len({str(cohort) for cohort in cohorts(runs[0])}) > 1
    for run in runs[1:]:
        assert torch.equal(run.setup.runtime.initial, runs[0].setup.runtime.initial)


def test_cohorts_depend_on_the_seed_and_so_does_the_initial_model(tiny):
    one, other = (run_parts("fedavg", tiny, cohort=0.5, rounds=6, seed=seed) for seed in (0, 1))
    assert cohorts(one) != cohorts(other)
    assert not torch.equal(one.setup.runtime.initial, other.setup.runtime.initial)


def test_the_global_generators_are_left_alone(tiny):
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes()
    run_parts("flood(T=1)+fedbss(T1=0)", tiny, rounds=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tobytes() == before[1]


def test_cohorts_are_replayed_round_by_round(tiny):
    run = run_parts("fedavg", tiny, rounds=3, selection="cohorts([[2, 0], [1], [3, 1, 2]])", cohort=None)
    found = [json.loads(cohort) for (cohort,) in run.store.record.all("SELECT cohort FROM rounds ORDER BY round")]
    assert found == [[0, 2], [1], [1, 2, 3]]
    for given, said in (("cohorts([[0], [1]])", "each of the 3 rounds"), ("cohorts([[0], [1], [9]])", r"in 0…3, not \[9\]"),
                        ("cohorts([0, 1, 2])", "needs a list of clients"), ("random_sample(-1, 2)", "whole seed"),
                        ("random_sample(42, 9)", "more than the 4 there are")):  # fmt: skip
        with pytest.raises(BadRequest, match=said):
            run_parts("fedavg", tiny, rounds=3, selection=given, cohort=None)


def test_cohorts_are_those_of_a_script_that_samples_with_pythons_generator():
    """FedNolowe's script: `random.seed(42)` once, then `random.sample(range(50), 5)` in every round."""
    script = random.Random(42)
    drawn = [sorted(script.sample(range(50), 5)) for _ in range(4)]
    rule = selection.chosen("random_sample(42, 5)", None, 50, 4)
    stream = numpy_stream(0, "cohort", 0)
    assert [selection.cohort_of(rule, stream, 50, round) for round in range(4)] == drawn
    share = selection.chosen("random_sample(42, 0.1)", None, 50, 4)
    assert selection.cohort_of(share, stream, 50, 3) == drawn[3]  # a resumed run draws the same
    assert selection.expected_cohort(rule, 50) == 5
