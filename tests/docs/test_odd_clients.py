"""What docs/results/odd-clients.md says about the weights of odd clients, on one seed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from undrift.methods.naming import part_tables

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "odd_clients.py"


@pytest.fixture(scope="module")
def odd():
    spec = importlib.util.spec_from_file_location("odd_clients", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def later(odd):
    """{rule: {kind: weight over the uniform one}} after 20 rounds."""
    federation = odd.odd_federation(0)
    server_state = odd.start(federation, 20, 0)

    def shares(rule):
        given = odd.weights(rule, federation, server_state, 0)
        of = {kind: [11 * p for client, p in given.items() if odd.OWNERS[client] == kind] for kind in odd.KINDS}
        return {kind: sum(own) / len(own) for kind, own in of.items()}

    return shares


def test_the_clients_are_as_odd_as_they_are_said_to_be(odd):
    federation = odd.odd_federation(0)
    assert dict(zip(odd.OWNERS, federation.sizes)) == {
        "ordinary": 60, "all wrong": 60, "one sample": 1, "ten times": 600, "noisy": 60, "one class": 60,
    }  # fmt: skip
    wrong = {odd.OWNERS[k]: int((federation.y != federation.clean_y)[federation.rows(k)].sum()) for k in range(11)}
    assert wrong == {"ordinary": 0, "all wrong": 60, "one sample": 0, "ten times": 0, "noisy": 24, "one class": 0}
    assert [odd.OWNERS[k] for k in range(11) if (federation.counts(k) > 0).sum() == 1] == ["one sample", "one class"]
    assert not set(federation.proxy_rows) & {row for k in range(11) for row in federation.rows(k)}


def test_every_rule_is_asked(odd):
    assert {rule.partition("(")[0] for rule in odd.RULES} == set(part_tables()["weighting"])


def test_bound_weighting_favours_a_single_sample_unless_its_terms_are_finite(later):
    assert later("bound")["one sample"] > 1.5
    assert later("bound(invert=sqrt_v)")["one sample"] > 8
    assert later("bound(finite=true)")["one sample"] < 0.6


def test_bound_weighting_on_zero_one_loss_prefers_an_all_wrong_client_to_an_ordinary_one(later):
    given = later("bound(loss=zero_one)")
    assert given["all wrong"] > given["ordinary"]
    assert given["noisy"] < given["ordinary"]
    assert later("bound(invert=mean_loss)")["all wrong"] < 0.2


def test_fednolowe_cannot_favour_anybody_and_division_can(later):
    given = later("fednolowe")
    assert max(given.values()) <= 1.1
    assert given["all wrong"] < given["noisy"] < given["ordinary"]
    assert later("fednolowe(invert=divide)")["one sample"] > 2


def test_floods_weights_stay_near_those_of_constant_confidence(later):
    measured, constant = later("flood"), later("flood(phi=constant)")
    assert max(abs(measured[kind] - constant[kind]) for kind in measured) < 0.3
