"""Clients whose data are loaded where they run: from a function of the client's number, on every engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest, RunFailed

SETTINGS = {"rounds": 3, "cohort": 4, "epochs": 1, "model": "logistic", "evaluate_every": 1, "out": False}


def load(client: int, size: int = 20):
    draw = np.random.default_rng(client)
    y = draw.integers(0, 3, size)
    return (draw.normal(size=(size, 5)) + y[:, None]).astype(np.float32), y


def four(client: int):
    return *load(client), *load(client + 1000, 10)


TEST = load(10**6, 60)


def lazy(function=load, sizes=(20,) * 12, **options):
    return ud.Federation.from_function(function, sizes, TEST, **options)


@pytest.mark.parametrize(("method", "engine"), [("fedavg", "inline"), ("fliu", "inline"), ("fliu", "processes")])
def test_a_function_of_clients_trains_and_evaluates_as_the_same_clients_in_a_list(method, engine):
    """The two federations differ in the server's test set alone, which no training looks at."""
    listed = ud.Federation.from_clients([load(client) for client in range(12)])
    first = ud.run(method, listed, engine="inline", **SETTINGS)
    second = ud.run(method, lazy(), engine=engine, workers=2, **SETTINGS)
    assert torch.equal(first.vector, second.vector)
    for stage in ("L1", "L2"):
        assert first.summary["stages"][stage]["acc_local"] == second.summary["stages"][stage]["acc_local"]


def test_a_fifth_of_a_clients_data_is_its_test_part_unless_it_brings_one():
    """round(0.2 · 20) = 4 samples are held back."""
    shared, own = lazy(), lazy(four, test_share=0)
    assert shared.sizes.tolist() == [16] * 12
    assert own.sizes.tolist() == [20] * 12
    assert [len(part[1]) for part in (shared.train(3), shared.lazy_clients.test(3))] == [16, 4]
    assert [len(part[1]) for part in (own.train(3), own.lazy_clients.test(3))] == [20, 10]
    both = torch.cat([shared.train(3)[1], shared.lazy_clients.test(3)[1]])
    assert both.sort().values.tolist() == sorted(load(3)[1].tolist())


def test_nobody_is_loaded_but_those_who_take_part():
    seen = []

    def watched(client):
        seen.append(client)
        return load(client)

    result = ud.run("fedavg", lazy(watched, [20] * 1000), engine="inline", **{**SETTINGS, "evaluate_every": 3})
    cohorts = [
        client for (cohort,) in result.rows("SELECT cohort FROM rounds ORDER BY round") for client in eval(cohort)
    ]
    assert set(seen) == set(cohorts)


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        (lambda k: load(k, 19), {}, "client 0 has 19 samples, but sizes says 20"),
        (four, {}, "client 0 has a test part of its own; say test_share=0"),
        (
            lambda k: (np.zeros((20, 4)), np.zeros(20, int)),
            {},
            r"client 0 has samples of shape \(4,\), the test set of \(5,\)",
        ),
        (lambda k: (load(k)[0], load(k)[1] + 1), {}, "labels must lie in 0…2; client 0 has 1 to 3"),
        (lambda k: (load(k)[0] * np.nan, load(k)[1]), {}, "client 0 has inputs that are NaN"),
    ],
)
def test_what_a_function_gives_is_checked_where_it_is_loaded(function, options, sentence):
    with pytest.raises(RunFailed, match=sentence):
        ud.run("fedavg", lazy(function, **options), engine="inline", **{**SETTINGS, "cohort": 12})


@pytest.mark.parametrize("sizes", [[], [3, 0], [1.5], [[1, 2]]])
def test_sizes_are_whole_numbers_one_per_client(sizes):
    with pytest.raises(BadRequest, match="sizes are whole numbers of at least 1, one per client"):
        lazy(load, sizes)


def test_a_run_is_resumed_only_with_the_same_sizes(tmp_path):
    ud.run("fedavg", lazy(), engine="inline", **{**SETTINGS, "out": tmp_path / "run"})
    assert ud.resume(tmp_path / "run", federation=lazy(), rounds=4).summary["rounds"] == 4
    with pytest.raises(BadRequest, match="the data are not those"):
        ud.resume(tmp_path / "run", federation=lazy(sizes=(20,) * 13), rounds=5)
