"""Real SuperLink, real SuperNodes, TLS and node authentication: the same bits as a simulation, whatever happens."""

from __future__ import annotations

import pytest
import torch

import undrift as ud

pytestmark = pytest.mark.flower


def test_five_rounds_of_three_sites_equal_the_simulation_and_every_site_has_its_model(loopback, simulate):
    loopback.make(rounds=5).superlink()
    for site in ("berlin", "oslo", "turin"):
        loopback.register(site)
        loopback.node(site)
    loopback.run()
    loopback.until_finished()
    simulated = simulate(rounds=5)
    assert torch.equal(ud.load(loopback.folder / "run").vector, simulated.vector)
    x = torch.randn(5, 1, 8, 8)
    for number, site in enumerate(("berlin", "oslo", "turin")):
        kept = ud.load(loopback.home_of(site))
        assert torch.equal(kept.model(x), simulated.model(x))
        assert torch.equal(kept.personal()(x), simulated.personal(number)(x))
        assert loopback.left(site) == loopback.counted(site) > 0
