"""ε against published values, against dp-accounting called directly, and calibration as its inverse."""

from __future__ import annotations

import dp_accounting
import pytest
from dp_accounting import pld, rdp

from undrift.methods.upload.accountant import Mechanism, calibrated, epsilon, epsilons, renyi


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta", "expected"), [(1.0, 0.01, 1500, 1e-6, 2.568), (1.0, 0.1, 100, 1e-5, 7.05)]
)
def test_poisson_cohorts_have_the_published_epsilon(noise, rate, rounds, delta, expected):
    assert epsilon(Mechanism(noise, "poisson", 1000 * rate, 1000), delta, rounds) == pytest.approx(expected, abs=0.005)


def test_without_amplification_the_same_noise_costs_thirteen_times_as_much():
    assert epsilon(Mechanism(1.0, "all", 1000, 1000), 1e-5, 100) == pytest.approx(91.8, abs=0.1)


def test_it_is_what_the_library_says_when_called_directly():
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(1.3)), 30)
    ours = epsilon(Mechanism(1.3, "poisson", 20, 100), 1e-5, 30)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert ours >= accountant.get_epsilon(1e-5) - 1e-9  # a coarser grid may only be more pessimistic


def test_a_fixed_cohort_is_counted_for_the_replacement_of_one_client():
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, dp_accounting.GaussianDpEvent(1.5 / 2))
    expected = accountant.compose(event, 20).get_epsilon(1e-5)
    found = Mechanism(1.5, "fixed", 10, 100)
    assert epsilon(found, 1e-5, 20) == pytest.approx(expected, rel=0.02)
    assert found.relation == "replace one client"


@pytest.mark.parametrize("cohorts", ["poisson", "all"])
def test_renyi_is_an_upper_bound_of_the_loss_distribution(cohorts):
    mechanism = Mechanism(1.0, cohorts, 10, 100)
    assert epsilon(mechanism, 1e-5, 50) <= renyi(mechanism, 1e-5, 50) < 2 * epsilon(mechanism, 1e-5, 50)


def test_every_round_has_an_epsilon_that_never_falls_and_never_says_too_little():
    mechanism = Mechanism(1.0, "poisson", 10, 100)
    spent = epsilons(mechanism, 1e-5, 60)
    assert list(spent) == sorted(spent)
    for rounds in (1, 20, 33, 60):
        exact = epsilon(mechanism, 1e-5, rounds)
        assert exact <= spent[rounds - 1] <= 1.05 * exact


@pytest.mark.parametrize(("wanted", "cohorts"), [(8.0, "poisson"), (1.0, "poisson"), (8.0, "fixed"), (20.0, "all")])
def test_calibration_inverts_the_count_to_one_per_cent(wanted, cohorts):
    noise = calibrated(wanted, 1e-5, 40, cohorts, 10, 100)
    reached = epsilon(Mechanism(noise, cohorts, 10, 100), 1e-5, 40)
    assert 0.99 * wanted <= reached <= wanted
