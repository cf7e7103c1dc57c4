"""Laws of local training: every client trains alone."""

from __future__ import annotations

import torch

from undrift.testing import run_parts


def test_local_training_is_training_alone_from_the_initial_model(tiny):
    # Client 2 alone in the federation, with the same draws: FedAvg of one client is local training.
    together = run_parts("local", tiny, rounds=4)
    alone = run_parts("fedavg", tiny, rounds=4, selection="list([2])", cohort=None)
    assert torch.equal(together.state(2), alone.vector)


def test_a_late_client_starts_from_the_initial_model_too(tiny):
    # Client 0 is lost in rounds 0 and 1: nothing of it is committed, so in round 2 it starts from Θ⁰.
    late = run_parts("local", tiny, rounds=3, lose={(0, 0), (1, 0)})
    first = run_parts("local", tiny, rounds=3, lose={(0, 0), (1, 0)}, selection="list([0])", cohort=None)
    assert torch.equal(late.state(0), first.state(0))
    assert not torch.equal(late.state(0), run_parts("local", tiny, rounds=3).state(0))


def test_clt_is_local(tiny):
    assert torch.equal(run_parts("clt", tiny).vector, run_parts("local", tiny).vector)


def test_local_models_are_the_same_at_both_stages(tiny):
    run = run_parts("local", tiny, rounds=2, evaluate_every=1)
    for data in ("own", "global"):
        assert run.metrics("L1", data) == run.metrics("L2", data)
