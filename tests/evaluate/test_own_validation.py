"""Clients' models on the clients' own validation data (`--evaluate-on validation`), and after rounds that are named."""

from __future__ import annotations

import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords
from undrift.federation import federation as federations
from undrift.methods.describe import describe

MODEL = {"model": "mlp(8)", "epochs": 1, "rounds": 2, "evaluate_every": 2, "evaluate_clients": "all", "out": False}
OWN = {**MODEL, "evaluate_on": "validation"}
ON_CLIENTS = (
    "SELECT round, client, stage, data, metric, value FROM metrics WHERE client IS NOT NULL ORDER BY 1, 2, 3, 4, 5"
)


@pytest.fixture(scope="module")
def permuted():
    """Half of the clients have other names for the classes, so that a client's labels are not those of the whole set."""
    federation = ud.federate("digits", "dirichlet(0.3)", 5, noise="permute(0.5)", validation=0.2)
    assert federation.permutations
    return federation


def accuracy(module, x, y):
    with torch.no_grad():
        return (module(x).argmax(1) == y).double().mean().item()


def recorded(result, stage, data, round=1):
    query = "SELECT client, value FROM metrics WHERE stage=? AND data=? AND metric='accuracy' AND round=?"
    return dict(result.rows(query, (stage, data, round)))


def test_a_clients_validation_part_is_what_it_has_and_does_not_train_on(permuted):
    held = permuted.validation_rows()
    seen = []
    for client in range(permuted.clients):
        x, y = permuted.own_validation(client)
        places, labels = permuted.validation_slice(client)
        rows = held[places.numpy()]
        assert torch.equal(y, labels)
        assert torch.equal(y, permuted.renamed(client, permuted.y[rows]))
        assert torch.equal(x, permuted.x[rows])
        assert set(rows) | set(permuted.rows(client)) == set(permuted.shards[client])
        assert not set(rows) & set(permuted.rows(client))
        seen += rows.tolist()
    assert sorted(seen) == held.tolist()


@pytest.mark.parametrize("method", ["fedavg", "fliu25", "finetune", "fedper", "local", "apfl"])
def test_l1_on_validation_data_is_what_the_client_uses_on_its_own_part(permuted, method):
    """By hand, from the models that the result gives; without a personal model it is the global one."""
    result = ud.run(method, permuted, **OWN)
    alone = not set(describe(method)["axes"]) & {"personalize", "private"}
    for data, part in (("validation", permuted.own_validation), ("own", permuted.own_test)):
        found = recorded(result, "L1", data)
        assert sorted(found) == list(range(permuted.clients))
        for client, value in found.items():
            module = result.model if alone else result.personal(client)
            assert value == pytest.approx(accuracy(module, *part(client)))
    assert recorded(result, "L1", "global") == {}


def test_what_is_evaluated_changes_neither_the_model_nor_the_other_numbers(permuted):
    validation, own = ud.run("fliu25", permuted, **OWN), ud.run("fliu25", permuted, **MODEL, evaluate_on="own")
    assert torch.equal(validation.vector, own.vector)
    for stage in ("L1", "L2"):
        assert recorded(validation, stage, "own") == recorded(own, stage, "own")
        assert len(recorded(validation, stage, "validation")) > 0
        assert recorded(own, stage, "validation") == {}


def test_engines_and_lock_step_agree(permuted):
    """Processes to the last bit; of lock-step, whose sums have another order, every accuracy."""
    stacked = ud.run("fliu25", permuted, **OWN, lockstep="on")
    spread = ud.run("fliu25", permuted, **OWN, lockstep="on", engine="processes", workers=2)
    assert stacked.rows(ON_CLIENTS) == spread.rows(ON_CLIENTS)
    single = ud.run("fliu25", permuted, **OWN, lockstep="off")
    for stage in ("L1", "L2"):
        assert recorded(single, stage, "validation") == pytest.approx(recorded(stacked, stage, "validation"))


def test_clients_outside_the_validation_set_are_evaluated_on_their_own_part_too(monkeypatch):
    """Of very many clients only some make the validation set; then the others' parts are passed at the clients."""
    monkeypatch.setattr(federations, "VALIDATORS", 2)
    federation = ud.federate("digits", "resample(40)", 4, validation=0.2)
    result = ud.run("fedavg", federation, **OWN)
    found = recorded(result, "L1", "validation")
    assert (list(federation.validators), sorted(found)) == ([0, 3], [0, 1, 2, 3])
    for client, value in found.items():
        assert value == pytest.approx(accuracy(result.model, *federation.own_validation(client)))


def test_a_client_too_small_for_a_validation_part_has_no_value():
    x, y = ud.federate("digits", "iid", 2).train(0)
    federation = ud.Federation.from_clients([(x, y, x[:9], y[:9]), (x[:2], y[:2], x[:9], y[:9])], validation=0.2)
    for method in ("fedavg", "local"):
        result = ud.run(method, federation, **OWN, cohort=1.0)
        assert sorted(recorded(result, "L1", "validation")) == [0]
        assert sorted(recorded(result, "L1", "own")) == [0, 1]


def test_clients_are_evaluated_after_the_rounds_that_are_named(permuted):
    every, at = (ud.run("fliu25", permuted, **{**OWN, "rounds": 4, **more}) for more in (
        {"evaluate_every": 1}, {"evaluate_every": 9, "evaluate_at": [1, 3, 40]},
    ))  # fmt: skip
    assert torch.equal(every.vector, at.vector)
    assert at.rows(ON_CLIENTS) == [row for row in every.rows(ON_CLIENTS) if row[0] in (0, 2, 3)]


def test_another_task_has_its_own_headline():
    federation = ud.federate("diabetes", "iid", 3, validation=0.2)
    result = ud.run("local", federation, **{**OWN, "rounds": 1}, lr=0.01)
    x, y = federation.own_validation(1)
    with torch.no_grad():
        by_hand = result.setup.runtime.measure(result.personal(1)(x), y)["rmse"]
    rows = result.rows(
        "SELECT value FROM metrics WHERE stage='L1' AND data='validation' AND metric='rmse' AND client=1"
    )
    assert rows == [(pytest.approx(by_hand, rel=1e-5),)]


# ---- what is typed ---------------------------------------------------------------------------------------------------


def test_rounds_are_typed_with_commas():
    assert from_keywords({"evaluate_at": "2,5"}).evaluate_at == (2, 5)
    assert from_keywords({}).evaluate_at is None
    with pytest.raises(BadRequest, match="--evaluate-at must be a list, each a whole number of at least 1, not 'x'"):
        from_keywords({"evaluate_at": "2,x"})
    for wrong in ("0", "2.5"):
        with pytest.raises(BadRequest, match=r"--evaluate-at\[0\] must be a whole number of at least 1, not"):
            from_keywords({"evaluate_at": wrong})


def test_without_validation_data_there_is_nothing_to_evaluate_on():
    with pytest.raises(
        BadRequest,
        match=r"^--evaluate-on validation evaluates .* there is none; add --validation 0\.1, or give --evaluate-on own$",
    ):
        ud.run("fedavg", clients=3, **OWN)


def test_data_that_are_loaded_where_a_client_runs_have_no_validation_part():
    x, y = ud.federate("digits", "iid", 2).train(0)
    federation = ud.Federation.from_function(lambda client: (x, y), [len(y)] * 3, (x, y), test_share=0.2)
    with pytest.raises(
        BadRequest, match="--evaluate-on validation evaluates clients on validation data, and there is none"
    ):
        ud.run("fedavg", federation, **OWN)
