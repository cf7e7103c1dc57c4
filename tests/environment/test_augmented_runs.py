"""Augmentation inside a run: seeded per client and round, recorded, for images only."""

from __future__ import annotations

import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.run_toml import read_toml

SMALL = {"clients": 4, "rounds": 2, "model": "mlp(8)", "partition": "iid"}


def test_augmented_runs_repeat_resume_and_differ_from_plain_ones(tmp_path):
    plain = ud.run("fedavg", out=False, **SMALL)
    first = ud.run("fedavg", augment="crop(pad=1)+flip", out=tmp_path / "run", **SMALL)
    again = ud.run("fedavg", augment=["crop(pad=1)", "flip"], out=False, engine="processes", workers=2, **SMALL)
    half = ud.run("fedavg", augment="crop(pad=1)+flip", out=tmp_path / "half", **SMALL | {"rounds": 1})
    whole = ud.resume(tmp_path / "half", rounds=2)
    hashes = [run.summary["model_sha256"] for run in (first, again, whole)]
    assert len(set(hashes)) == 1
    assert hashes[0] != plain.summary["model_sha256"]
    assert half.summary["model_sha256"] != hashes[0]
    assert read_toml(tmp_path / "run" / "run.toml")["augment"] == "crop(pad=1)+flip"


def test_tables_are_not_augmented():
    federation = ud.Federation.from_clients([(torch.randn(20, 4), torch.arange(20) % 3)])
    with pytest.raises(BadRequest, match="--augment works on images, but own is a table"):
        ud.run("fedavg", federation, augment="flip", rounds=1, out=False)
