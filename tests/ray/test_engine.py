"""The Ray engine gives inline's bits and sends no more than it must."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import undrift as ud
from undrift.engine.ray import Ray
from undrift.experiment.callback import RunCallback
from undrift.testing import small_network, tiny
from undrift.testing.task_table import PROBLEMS, problem

pytestmark = pytest.mark.ray

SETTINGS = {"rounds": 4, "epochs": 2, "batch": 8, "momentum": 0.5, "cohort": 3, "evaluate_every": 2, "out": False}
PLAIN = {**SETTINGS, "model": lambda: small_network(5, 3)}
NORM = {**SETTINGS, "model": lambda: small_network(5, 3, norm=True, dropout=0.2)}
WIDE = {**SETTINGS, "model": "mlp(300)"}  # 2 703 numbers: too large to be sent inside a message


@pytest.fixture(scope="module", params=[1, 2], ids=["one-actor", "two-actors"])
def ray_engine(request, cluster):
    """One engine for all tests, because starting actors is slow."""
    engine = Ray(cluster.address, request.param, keep_alive=True)
    yield engine
    engine.leave()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("scaffold", WIDE), ("fliu", PLAIN), ("flood", PLAIN), ("fedmr", WIDE), ("fedavg", NORM)],
    ids=["scaffold", "fliu", "flood", "fedmr", "norm-dropout"],
)
def test_ray_gives_the_same_bits_as_inline(name, settings, ray_engine):
    federation = tiny(clients=5)
    inline = ud.run(name, federation, engine="inline", **settings)
    assert bool(inline.setup.plan.lockstep) is (settings is not NORM)
    spread = ud.run(name, federation, engine="ray", started=ray_engine, **settings)
    assert inline.summary["model_sha256"] == spread.summary["model_sha256"]
    rows = "SELECT * FROM metrics ORDER BY round, client, stage, data, metric"
    assert inline.rows(rows) == spread.rows(rows)


@pytest.mark.parametrize("task", ["sequence", "regression"])
def test_other_tasks_give_the_same_bits(task, ray_engine):
    settings = {**SETTINGS, "model": PROBLEMS[task][1]}
    inline = ud.run("scaffold", problem(task), engine="inline", **settings)
    spread = ud.run("scaffold", problem(task), engine="ray", started=ray_engine, **settings)
    assert inline.summary["model_sha256"] == spread.summary["model_sha256"]
    assert inline.summary["headline"] == spread.summary["headline"]


def test_shared_tensors_go_through_the_store_once_and_others_with_their_order(ray_engine):
    """mlp(300) on 5 features and 3 classes: 5·300 + 300 + 300·3 + 3 = 2 703 numbers, 10 812 bytes; three rounds of four
    clients. An order or a reply has some hundred bytes of its own, and so have the logits of the 60 test samples."""
    size, sent = 10_812, {}
    for name in ("fedavg", "scaffold", "fedmr"):
        settings = {**WIDE, "rounds": 3, "evaluate_every": 99, "cohort": 4}
        ud.run(name, tiny(clients=5), engine="ray", started=ray_engine, **settings)
        sent[name] = ray_engine.bytes
    assert sent["fedavg"]["common"] == 3 * size  # the vector, to all four clients at once
    assert sent["fedavg"]["orders"] < 3 * (
        size + 4 * 600
    )  # the evaluated vector goes out once, for a part of the test set
    assert 3 * 4 * size < sent["fedavg"]["replies"] < 3 * 4 * (size + 2500)
    assert sent["scaffold"]["common"] == 2 * 3 * size  # the vector and c
    assert sent["scaffold"]["replies"] > 3 * 4 * 3 * size  # the vector, the change of c_k, the new state
    assert sent["fedmr"]["orders"] - sent["fedavg"]["orders"] > 3.9 * size  # recombined models, one for each client


def load(client: int):
    """40 samples of 784 numbers: 125 kB, which the driver must never load."""
    draw = np.random.default_rng(client)
    y = draw.integers(0, 3, 40)
    return (0.05 * draw.normal(size=(40, 784)) + np.eye(3, 784)[y]).astype(np.float32), y


def lazy_federation(clients: int) -> ud.Federation:
    return ud.Federation.from_function(load, np.full(clients, 40), load(2**31))


def test_clients_are_loaded_where_they_run_with_the_same_result(ray_engine):
    settings = {"cohort": 5, "rounds": 3, "epochs": 1, "model": "logistic", "evaluate_every": 1, "out": False}
    inline = ud.run("scaffold", lazy_federation(40), engine="inline", **settings)
    spread = ud.run("scaffold", lazy_federation(40), engine="ray", started=ray_engine, **settings)
    assert inline.summary["model_sha256"] == spread.summary["model_sha256"]
    assert inline.summary["stages"] == spread.summary["stages"]


@pytest.mark.parametrize("ray_engine", [2], indirect=True, ids=["two-actors"])
def test_20_000_clients_cost_the_driver_no_more_memory_than_500(ray_engine):
    """250 clients in each of 8 rounds: 2 000 × 125 kB = 250 MB would pass through the driver if it loaded them."""
    peaks = {}

    class Peak(RunCallback):
        def on_round(self, *_):
            lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
            now = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            peaks[clients] = max(peaks.get(clients, 0), now / 1000)  # MB

    settings = {"cohort": 250, "rounds": 8, "epochs": 1, "model": "logistic", "evaluate_every": 99, "out": False}
    for clients in (500, 20_000):
        found = ud.run(
            "fedavg", lazy_federation(clients), engine="ray", started=ray_engine, callback=Peak(), **settings
        )
        assert found.summary["accuracy"] > 0.9
    assert peaks[20_000] - peaks[500] < 30
