"""Newcomers: clients held out of training, evaluated with the global model and after fine-tuning it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.testing import run_parts, small_network

SHARED = {"model": "mlp(8)", "rounds": 2, "cohort": 1.0, "out": False, "clients": 10, "partition": "dirichlet(0.5)"}


def held_out(unseen: float = 0.2, clients: int = 10):
    return ud.federate("digits", "dirichlet(0.5)", clients, unseen=unseen, seed=3)


def test_unseen_clients_keep_their_data_and_the_others_theirs():
    whole, held = held_out(0.0), held_out()
    assert (whole.clients, held.clients, list(held.newcomers)) == (10, 8, [8, 9])
    absent = held.record["unseen"]
    assert len(absent) == 2
    stayed = [k for k in range(10) if k not in absent]
    for new, old in enumerate(stayed + absent):
        assert np.array_equal(held.rows(new), whole.rows(old))
        assert torch.equal(held.slice(new)[0], whole.slice(old)[0])
    assert held.total == sum(len(whole.rows(k)) for k in stayed)


def test_newcomers_never_train_and_are_evaluated_at_g_and_after_fine_tuning():
    result = ud.run("fedavg", **SHARED, unseen=0.2)
    cohorts = result.rows("SELECT cohort FROM rounds")
    assert all(cohort == str(list(range(8))) for (cohort,) in cohorts)
    rows = result.rows("SELECT DISTINCT client, stage FROM metrics WHERE data='unseen' ORDER BY client, stage")
    assert rows == [(8, "G"), (8, "L2"), (9, "G"), (9, "L2")]
    assert result.rows("SELECT COUNT(*) FROM metrics WHERE client > 7 AND data != 'unseen'") == [(0,)]
    found = result.summary["unseen"]
    assert found["G"]["clients"] == found["L2"]["clients"] == 2


def test_g_of_a_newcomer_is_the_global_model_on_its_slice():
    federation = held_out()
    result = ud.run("scaffold", federation, **{k: v for k, v in SHARED.items() if k not in ("clients", "partition")})
    for client in federation.newcomers:
        place, y = federation.slice(client)
        hits = (result.model(federation.test_x[place].permute(0, 3, 1, 2)).argmax(1) == y).double().mean().item()
        ((value,),) = result.rows("SELECT value FROM metrics WHERE data='unseen' AND stage='G' AND metric='accuracy' AND client=? "
                                  "ORDER BY round DESC LIMIT 1", (client,))  # fmt: skip
        assert value == hits


def test_unseen_clients_do_not_change_the_run_of_the_others(tiny):
    clients = [(*tiny.train(k), tiny.test_x[tiny.slice(k)[0]], tiny.slice(k)[1]) for k in range(4)]
    with_one = ud.Federation.from_clients(clients, labels=["a", "b", "c"], unseen=0.25)
    (absent,) = with_one.record["unseen"]
    without = ud.Federation.from_clients([c for k, c in enumerate(clients) if k != absent], labels=["a", "b", "c"])
    a, b = (run_parts("scaffold", federation, model=lambda: small_network(5, 3)) for federation in (with_one, without))
    assert torch.equal(a.vector, b.vector)


def test_with_private_entries_newcomers_are_evaluated_after_fine_tuning_only():
    result = ud.run("fedper", **SHARED, unseen=0.2)
    assert "G" not in result.summary["unseen"]
    assert result.summary["unseen"]["L2"]["clients"] == 2


def test_fine_tuning_is_the_runs_own_training_on_the_newcomers_data(tiny):
    """From the evaluated model, as many epochs, the run's rate: loss on its own data falls."""
    clients = [tiny.train(k) + (tiny.train(k)) for k in range(4)]  # tested on what it tunes on
    federation = ud.Federation.from_clients(clients, labels=["a", "b", "c"], unseen=0.25)
    run = run_parts("fedavg", federation, model=lambda: small_network(5, 3), epochs=5)
    before, after = run.metrics("G", "unseen", "loss"), run.metrics("L2", "unseen", "loss")
    assert after[2, 3] < before[2, 3]


def test_a_resampled_federation_can_hold_out_clients():
    federation = ud.federate("digits", "resample(40)", 12, unseen=0.25)
    assert (federation.clients, len(federation.sizes), list(federation.newcomers)) == (9, 9, [9, 10, 11])


def test_a_run_with_unseen_clients_is_repeated_by_its_toml_and_resumed(tmp_path):
    result = ud.run("fedavg", **{**SHARED, "out": tmp_path / "run"}, unseen=0.2)
    again = ud.load(tmp_path / "run")
    assert again.setup.federation.unseen == 2
    assert again.summary == result.summary


@pytest.mark.parametrize(("share", "clients"), [(0.99, 10), (0.5, 1)])
def test_a_share_that_leaves_nobody_is_an_error_that_says_so(share, clients):
    with pytest.raises(BadRequest, match=f"of {clients} clients leaves no client"):
        ud.run("fedavg", **{**SHARED, "clients": clients}, unseen=share)


def test_unseen_is_refused_for_a_federation_that_has_none(tiny):
    with pytest.raises(BadRequest, match="when a federation is made"):
        run_parts("fedavg", tiny, unseen=0.2)


def test_domains_are_evaluated_each_and_pooled():
    from undrift.data.dataset import DataSet

    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 120)
    where = draw.integers(0, 2, 120)
    x = (draw.normal(size=(120, 4)) + 2 * y[:, None]).astype(np.float32)
    data = DataSet("two places", x[:80], y[:80], x[80:], y[80:], ("a", "b"), (0.0,) * 4, (1.0,) * 4, "", "",
                   domains=("here", "there"), domain_train=where[:80], domain_test=where[80:])  # fmt: skip
    federation = ud.federate(data, "dirichlet(5)", 3)
    run = run_parts("fedavg", federation, model=lambda: small_network(4, 2), rounds=1)
    parts = [
        run.metrics(stage, f"domain:{name}")[0, client]
        for stage, client in (("G", None), ("L2", 1))
        for name in ("here", "there")
    ]
    sizes = [int((where[80:] == d).sum()) for d in (0, 1)]
    pooled = np.dot(sizes, parts[:2]) / sum(sizes)
    assert pooled == pytest.approx(run.metrics("G", "global")[0, None])
    assert np.dot(sizes, parts[2:]) / sum(sizes) == pytest.approx(run.metrics("L2", "global")[0, 1])
