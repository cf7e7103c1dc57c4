"""The findings of docs/results/odd-clients.md on the weights of odd clients, at one seed."""

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
def after_20_rounds(odd):
    """A function of a rule: {kind of client: weight divided by the uniform one} after 20 rounds."""
    federation = odd.odd_federation(0)
    server_state = odd.start(federation, 20, 0)

    def shares(rule):
        weights = odd.weights(rule, federation, server_state, 0)
        ratios = {kind: [11 * p for client, p in weights.items() if odd.OWNERS[client] == kind] for kind in odd.KINDS}
        return {kind: sum(values) / len(values) for kind, values in ratios.items()}

    return shares


def test_the_clients_are_as_the_page_describes_them(odd):
    federation = odd.odd_federation(0)
    assert dict(zip(odd.OWNERS, federation.sizes)) == {
        "ordinary": 60,
        "all wrong": 60,
        "one sample": 1,
        "ten times": 600,
        "noisy": 60,
        "one class": 60,
    }
    wrong = {odd.OWNERS[k]: int((federation.y != federation.clean_y)[federation.rows(k)].sum()) for k in range(11)}
    assert wrong == {"ordinary": 0, "all wrong": 60, "one sample": 0, "ten times": 0, "noisy": 24, "one class": 0}
    assert [odd.OWNERS[k] for k in range(11) if (federation.counts(k) > 0).sum() == 1] == ["one sample", "one class"]
    assert not set(federation.proxy_rows) & {row for k in range(11) for row in federation.rows(k)}


def test_every_weighting_rule_is_in_the_table(odd):
    on_adapters = {"loranorm"}  # the network of the page has none
    assert {rule.partition("(")[0] for rule in odd.RULES} == set(part_tables()["weighting"]) - on_adapters


def test_bound_weighting_favours_a_single_sample_unless_its_terms_are_finite(after_20_rounds):
    assert after_20_rounds("bound")["one sample"] > 1.5
    assert after_20_rounds("bound(invert=sqrt_v)")["one sample"] > 8
    assert after_20_rounds("bound(finite=true)")["one sample"] < 0.6


def test_bound_weighting_on_zero_one_loss_prefers_an_all_wrong_client_to_an_ordinary_one(after_20_rounds):
    weights = after_20_rounds("bound(loss=zero_one)")
    assert weights["all wrong"] > weights["ordinary"]
    assert weights["noisy"] < weights["ordinary"]
    assert after_20_rounds("bound(invert=mean_loss)")["all wrong"] < 0.2


def test_fednolowe_cannot_favour_a_client_and_division_can(after_20_rounds):
    weights = after_20_rounds("fednolowe")
    assert max(weights.values()) <= 1.1
    assert weights["all wrong"] < weights["noisy"] < weights["ordinary"]
    assert after_20_rounds("fednolowe(invert=divide)")["one sample"] > 2


def test_floods_weights_stay_near_those_of_constant_confidence(after_20_rounds):
    measured, constant = after_20_rounds("flood"), after_20_rounds("flood(phi=constant)")
    assert max(abs(measured[kind] - constant[kind]) for kind in measured) < 0.3
