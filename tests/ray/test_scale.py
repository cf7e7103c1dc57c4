"""The model of a round's time (undrift.bench.scale), by hand and against the clock."""

from __future__ import annotations

import pytest

from undrift.bench.measure import Ours
from undrift.bench.scale import Round, observed, predict, steady
from undrift.engine.ray import Ray
from undrift.engine.spawn import cores


def test_the_model_by_hand():
    """Ten clients of 1 s, orders of 0.1 s, 0.5 s of the server: 0.5 + 11 s alone, 11/4 s on four cores; eleven machines
    are as good as ten, and with a thousand clients the driver's 100 s are the limit."""
    alone = Round(11.5, 11.0, (1.0,) * 10)
    assert alone.server == pytest.approx(0.5)
    assert alone.order == pytest.approx(0.1)
    assert predict(alone, [(1, 1)]) == pytest.approx(11.5)
    assert predict(alone, [(2, 2), (2, 2)]) == pytest.approx(0.5 + 11 / 4)
    assert predict(alone, [(3, 2)]) == pytest.approx(0.5 + 11 / 2)
    assert predict(alone, [(1, 1)] * 11) == pytest.approx(0.5 + 1.1)
    assert predict(alone, [(2, 2)], carried=1e9, bandwidth=1e9) == pytest.approx(0.5 + 11 / 2 + 1)
    assert predict(Round(1100.5, 1100.0, (1.0,) * 1000), [(8, 8)] * 100) == pytest.approx(100.5)


@pytest.mark.ray
def test_one_actor_predicts_two_actors_and_three_nodes_within_a_fifth(cluster, node):
    third = None
    found = {}
    for name, actors in (("one actor", 1), ("two actors", 2), ("three nodes", 3)):
        if actors == 3:
            third = cluster.add_node(**node, num_cpus=1)
        ours = Ours(steady(), 0, engine=Ray(cluster.address, actors).open)
        try:
            found[name] = observed(ours)
            assert len(ours.engine.workers) == actors
        finally:
            ours.close()
    cluster.remove_node(third)
    alone = found["one actor"]
    assert sum(alone.clients) > 0.9 * alone.seconds  # the work dominates, as it should
    for name, actors in (("two actors", 2), ("three nodes", 3)):  # all on this machine, with its cores
        predicted, measured = predict(alone, [(actors, cores())]), found[name].seconds
        assert measured == pytest.approx(predicted, rel=0.2), name
