"""A run is opened without its data: what the record holds is there, and the rest says what is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest

SETTINGS = {"rounds": 2, "epochs": 1, "cohort": 1.0, "engine": "inline"}


def check(run, folder):
    again = ud.load(folder)
    assert again.summary == run.summary
    assert again.accuracy == run.accuracy
    assert again.table() == run.table()
    assert again.plot().to_json() == run.plot().to_json()
    assert np.array_equal(again.curve().mean, run.curve().mean)
    assert torch.equal(again.vector, run.vector)
    assert str(again.traces())
    assert repr(again) == repr(run)
    return again


def test_a_run_on_a_file_that_is_gone_is_still_plotted(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.random.default_rng(0).normal(size=(60, 4)), y=np.arange(60) % 3)
    run = ud.run("fedavg", data=str(tmp_path / "mine.npz"), partition="iid", clients=3, out=tmp_path / "r", **SETTINGS)
    (tmp_path / "mine.npz").unlink()
    again = check(run, tmp_path / "r")
    for ask in (lambda: again.model, lambda: again.personal(0)):
        with pytest.raises(BadRequest, match=r"which are missing: there is no file .*mine.npz"):
            ask()
    with pytest.raises(BadRequest, match="there is no file"):
        ud.resume(tmp_path / "r", rounds=3)


def test_a_run_on_a_federation_of_objects_is_plotted_and_takes_the_federation_for_the_rest(tmp_path):
    federation = ud.Federation.from_clients([(torch.randn(20, 4), torch.arange(20) % 2) for _ in range(3)])
    run = ud.run("fedavg", federation, out=tmp_path / "r", **SETTINGS)
    again = check(run, tmp_path / "r")
    with pytest.raises(BadRequest, match="federation=…"):
        again.personal(0)
    assert ud.load(tmp_path / "r", federation=federation).personal(0) is not None
