from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch, request):
    """Tests neither read nor write the user's cache, and only tests marked `data` read the user's data."""
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path_factory.mktemp("cache")))
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    elif not os.environ.get("UNDRIFT_DATA"):
        pytest.skip("UNDRIFT_DATA names no folder with the real data sets")
