"""Laws of every weighting rule, its variants and controls included.

Weights are non-negative and sum to one, whatever the order of the clients. A single client gets 1, a client whose score is
not finite is left out, and size weights are used if all weights are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch

from undrift import testing
from undrift.contract.context import normalised
from undrift.contract.parts import Weighting
from undrift.core.errors import BadRequest
from undrift.engine.inline import Inline
from undrift.methods.naming import part_tables
from undrift.round.server import replies_of
from undrift.store.run_store import RunStore
from undrift.testing import run_parts

RULES = [
    "size", "uniform", "aflama", "feddisco", "feddisco(a=0, b=0)", "fedasl", "fedasl(loss=last, ddof=1)",
    "fedasl(hybrid=true)", "mix([size(), bound()], [0.5, 0.5])",
    *(f"flood(phi={phi})" for phi in ("measured", "constant", "permuted", "reversed")),
    *(f"flood(score={score})" for score in ("msp", "maxlogit", "gen", "ash-p", "ash-b", "ash-s")),
    "flood(score=gen, norm_phi=sum)",
    *(f"bound({options})" for options in (
        "", "when=after", "on=held", "finite=true", "moment=1", "loss=zero_one", "loss=ce", "start=0")),
    *(f"bound(invert={how})" for how in ("mean_loss", "sqrt_v", "n_over_eta", "permuted")),
    *(f"fednolowe(invert={how})" for how in ("subtract", "divide", "exp", "log", "rank")),
    "fednolowe(loss=last)", "fednolowe(normalise=minmax)", "fednolowe(normalise=centre)", "fednolowe(reverse=true)",
]  # fmt: skip


def federation(sick: int | None = None):
    """Six clients, one with a single sample; a proxy set for the rule that needs one."""
    made = testing.tiny(clients=6, sizes=[1, 17, 30, 6, 9, 12])
    made.proxy_rows = np.arange(0, len(made.y), 9)
    if sick is not None:
        made.x = made.x.clone()
        made.x[made.rows(sick)] = torch.nan
        made.proxy_rows = np.setdiff1d(made.proxy_rows, made.rows(sick))
    return made


@cache
def two_rounds(rule: str) -> testing.Outcome:
    return run_parts(f"fedavg@{rule}", federation(), rounds=2)


def weights(run, round=0):
    return {client: value for at, client, value in run.notes("weight") if at == round}


def test_every_rule_is_here():
    on_adapters = {"loranorm"}  # tests/laws/test_lora.py
    assert {rule.partition("(")[0] for rule in RULES} == set(part_tables()["weighting"]) - on_adapters


@pytest.mark.parametrize("rule", RULES)
def test_weights_are_not_negative_and_sum_to_one(rule):
    run = two_rounds(rule)
    assert run.events == []  # no client is left out, and the rule itself was used
    for round in range(2):
        given = weights(run, round)
        assert list(given) == list(range(6))
        assert min(given.values()) >= 0
        assert sum(given.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_weights_follow_the_clients_whatever_their_order(rule):
    run, store = two_rounds(rule), RunStore(None)
    loop = run.setup.loop(Inline(run.setup.runtime, store.states), store)
    server_state = loop.begin()
    server_round = loop.open_round(server_state)
    orders = loop.orders(server_round, list(range(6)))
    replies = replies_of(orders, loop.engine.map(orders))
    part = run.setup.method.one("weighting")
    turned = [3, 1, 5, 0, 4, 2]

    def share(answers):
        raw = part.weights(server_round.window(part), answers.of(part.key))
        return torch.tensor(normalised(raw.tolist(), answers.n)[0])

    assert torch.allclose(share(replies)[turned], share(replies.only(turned)), rtol=1e-9, atol=0)


@pytest.mark.parametrize("rule", RULES)
def test_a_single_client_gets_one(rule):
    run = run_parts(f"fedavg@{rule}", federation(), rounds=1, selection="list([2])", cohort=None)
    assert weights(run) == {2: 1.0}
    assert run.events == []


@pytest.mark.parametrize("rule", RULES)
def test_a_client_that_is_not_finite_is_left_out_and_the_others_are_weighted(rule):
    run = run_parts(f"fedavg@{rule}", federation(sick=2), rounds=1)
    assert [event[:3] for event in run.events] == [(0, 2, "nonfinite")]
    given = weights(run)
    assert sorted(given) == [0, 1, 3, 4, 5]
    assert sum(given.values()) == pytest.approx(1, abs=1e-12)


@dataclass(frozen=True)
class Nothing(Weighting):
    def weights(self, server, replies):
        return torch.zeros(len(replies), dtype=torch.float64)


def test_if_all_weights_are_zero_size_weights_are_used_and_recorded():
    run = run_parts(Nothing(), federation(), rounds=1)
    assert weights(run) == pytest.approx({k: n / 75 for k, n in enumerate([1, 17, 30, 6, 9, 12])})
    assert [event[2] for event in run.events] == ["weights"]
    assert "zero" in run.events[0][3]
    assert torch.equal(run.vector, run_parts("fedavg", federation(), rounds=1).vector)


@pytest.mark.parametrize("cap", [0.2, 0.3, 0.4, 1.0])
def test_no_client_has_more_weight_than_the_cap(cap):
    """Sizes 1, 17, 30, 6, 9, 12 of 75: client 2 has 0.4. What is cut off goes to the others in proportion."""
    plain = weights(run_parts("fedavg", federation(), rounds=1))
    run = run_parts("fedavg", federation(), rounds=1, weight_cap=cap)
    given = weights(run)
    assert max(given.values()) <= cap + 1e-12
    assert sum(given.values()) == pytest.approx(1, abs=1e-12)
    free = [k for k in given if given[k] < cap - 1e-12]
    assert {round(given[k] / plain[k], 9) for k in free} == {round(given[0] / plain[0], 9)}
    assert given == plain or cap < 0.4
    assert {value for _, _, value in run.notes("uncapped")} == (set(plain.values()) if cap < 0.4 else set())


def test_a_cap_that_is_no_share_is_refused():
    for wrong in (0, 1.5, -1, True):
        with pytest.raises(BadRequest, match="--weight-cap must be a number above 0 and at most 1"):
            run_parts("fedavg", federation(), weight_cap=wrong)
