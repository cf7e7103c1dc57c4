"""Clients whose data are loaded where they run: the same on every engine, and nothing of them with the driver."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import undrift as ud

pytestmark = pytest.mark.ray


def load(client: int):
    """40 samples of 784 numbers: 125 kB, of which the driver should never see one."""
    draw = np.random.default_rng(client)
    y = draw.integers(0, 3, 40)
    return (draw.normal(size=(40, 784)) + y[:, None]).astype(np.float32), y


def federation(clients: int) -> ud.Federation:
    return ud.Federation.from_function(load, np.full(clients, 40), load(-1 % 2**31))


def test_20_000_clients_cost_the_driver_no_more_memory_than_500(on_ray):
    """250 clients in each of 8 rounds: 2 000 × 125 kB = 250 MB would pass through, were they not loaded elsewhere."""
    peaks = {}

    class Watcher:
        def round(self, *_):
            lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
            now = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            peaks[clients] = max(peaks.get(clients, 0), now / 1000)  # MB

    settings = {"cohort": 250, "rounds": 8, "epochs": 1, "model": "logistic", "evaluate_every": 99, "batch": 32}
    for clients in (500, 20_000):
        found = ud.run("fedavg", federation(clients), watcher=Watcher(), **on_ray, **settings)
        assert found.summary["accuracy"] > 0.9
    assert peaks[20_000] - peaks[500] < 30


def test_ray_and_inline_load_the_same_clients(on_ray):
    settings = {"cohort": 5, "rounds": 3, "epochs": 1, "model": "logistic", "evaluate_every": 1}
    inline = ud.run("scaffold", federation(40), engine="inline", out=False, **settings)
    spread = ud.run("scaffold", federation(40), **on_ray, **settings)
    assert inline.summary["model_sha256"] == spread.summary["model_sha256"]
    assert inline.summary["stages"] == spread.summary["stages"]
