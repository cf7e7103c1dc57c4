"""`undrift bench` on workloads of a few hundred samples: what it reports, not how fast it is."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest

from undrift.bench import bare, measure


@pytest.fixture(scope="module")
def small() -> dict[str, bare.Work]:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((400, 784), dtype=np.float32), draw.integers(0, 10, 400)
    hundred = np.array_split(np.arange(400), 20)
    return bare.works(x, y, hundred, hundred)


def test_the_bare_loop_does_not_import_undrift():
    tree = ast.parse(inspect.getsource(bare))
    names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    names += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    assert not [name for name in names if name.startswith("undrift")]


def test_the_shares_of_a_round_add_up_to_its_wall_time(small):
    shares = measure.profile(small["a"], workers=1, rounds=3)
    assert shares.pop("seconds") > 0
    assert shares.pop("clients").startswith("clients one by one")
    assert set(shares) >= {"training", "scoring", "evaluation", "copying and waiting", "aggregation", "store"}
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.05)
    assert shares["training"] > 0
    assert shares["evaluation"] > 0


@pytest.mark.slow
def test_a_workload_is_measured_in_pairs_and_reports_median_and_spread(small):
    messages: list[str] = []
    found = measure.measure(small["a"], workers=1, seconds=0.0, pairs=3, say=messages.append)
    assert found["pairs"] == len(messages) == 3
    assert found["ratio"] > 0
    assert found["ratio_evaluated"] > 0
    assert found["spread"] >= 0
