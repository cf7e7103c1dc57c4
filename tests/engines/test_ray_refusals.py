"""Errors for users without Ray. Tests that need Ray are in tests/ray."""

from __future__ import annotations

import sys

import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.testing import tiny


def test_without_ray_the_engine_says_how_to_get_it_and_leaves_no_run_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadRequest, match=r"Ray, which is not installed: pip install 'undrift\[ray\]'"):
        ud.run("fedavg", tiny(), engine="ray", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_address_without_the_engine_is_refused():
    with pytest.raises(BadRequest, match="--ray-address goes with --engine ray"):
        ud.run("fedavg", tiny(), ray_address="127.0.0.1:6379", out=False)
