"""Diagnostics of drift: gradients, how far clients move, the objective, the bound."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.evaluate.diagnose.bound import hellinger
from undrift.testing import half_square, quadratics, run_parts

STEP = {"epochs": 1, "batch": 1, "evaluate_every": 1, "lr": 0.1}


def numbers(run, metric: str, stage: str = "G", data: str = "train") -> dict:
    return run.metrics(stage, data, metric)


# ---- gradients -----------------------------------------------------------------------------------------------------


def test_the_gradient_norm_is_that_of_the_pooled_loss():
    # ∇F(0) = (1·(0−1) + 3·(0−2)) / 2 = −3.5 for two clients of one sample
    run = run_parts("fedavg", quadratics([1, 3], [1, 2]), diagnose="gradients", rounds=1, **STEP)
    assert numbers(run, "gradient_norm_squared")[0, None] == pytest.approx(3.5**2)


def test_clients_count_in_the_pooled_loss_by_their_samples():
    run = run_parts("fedavg", quadratics([1, 3], [1, 2], samples=[1, 3]), diagnose="gradients", rounds=1, **STEP)
    assert numbers(run, "gradient_norm_squared")[0, None] == pytest.approx(((1 * 1 + 3 * 6) / 4) ** 2)


def test_on_quadratics_the_gradient_norm_falls_from_a_far_start_to_the_floor_of_fedavgs_fixed_point():
    # E steps of rate η at curvature c pull by s = 1 − (1 − ηc)^E towards o: FedAvg rests at x* = Σ s·o / Σ s, not at the
    # optimum Σ c·o / Σ c, so the floor is ∇F(x*)² = (Σ c (x* − o) / 2)².
    c, o, eta, E = [1.0, 4.0], [1.0, 0.0], 0.1, 5
    run = run_parts("fedavg", quadratics(c, o, start=20.0), diagnose="gradients", rounds=25,
                    **{**STEP, "epochs": E, "lr": eta})  # fmt: skip
    s = [1 - (1 - eta * k) ** E for k in c]
    rest = sum(a * b for a, b in zip(s, o)) / sum(s)
    floor = (sum(k * (rest - b) for k, b in zip(c, o)) / 2) ** 2
    norms = [value for _, value in sorted(numbers(run, "gradient_norm_squared").items())]
    assert norms[0] == pytest.approx((1 * 19 + 4 * 20) ** 2 / 4)
    assert norms[-1] == pytest.approx(floor, rel=1e-3)
    assert floor == pytest.approx(0.0722, abs=1e-4)
    assert all(later <= earlier * 1.0001 for earlier, later in itertools.pairwise(norms))


def test_delta_is_zero_at_equal_weights_and_not_otherwise(tiny):
    plain = run_parts("fedavg", tiny, diagnose="gradients", rounds=1)
    assert set(numbers(plain, "sampling_gap").values()) == {0.0}
    tilted = run_parts("flood(T=1, a=5)", tiny, diagnose="gradients", rounds=3, evaluate_every=1)
    gaps = numbers(tilted, "sampling_gap")
    assert gaps[0, None] == 0  # λ = 1 in the first round
    assert gaps[2, None] == max(gaps[2, client] for client in range(4)) > 0
    assert numbers(tilted, "sample_weight_max")[2, None] == 10  # 2a
    assert numbers(tilted, "sample_weight_min")[2, None] == 1


def test_delta_of_the_mean_weight_is_the_gradient_itself_times_what_is_too_much(tiny):
    """`control=mean` gives every sample of a client the same weight w: L̃ = w·L, so δ = (w − 1)‖∇L‖."""
    x, y = tiny.train(3)
    alone = ud.Federation.from_clients([(x, y, x, y)], labels=["a", "b", "c"])
    run = run_parts("flood(T=1, a=5, control=mean)", alone, model=tiny.model, diagnose="gradients", evaluate_every=1)
    w = numbers(run, "sample_weight_max")[2, None]
    assert w == numbers(run, "sample_weight_min")[2, None] > 1
    norm = math.sqrt(numbers(run, "gradient_norm_squared")[2, None])
    assert numbers(run, "sampling_gap")[2, 0] == pytest.approx((w - 1) * norm, rel=1e-5)


def test_delta_sees_what_a_sampler_picks(tiny):
    run = run_parts("fedbss(T1=0)", tiny, diagnose="gradients", rounds=1)
    assert numbers(run, "sampling_gap")[0, None] > 0


def test_with_everybody_and_size_weights_epsilon_is_zero_and_alignment_one(tiny):
    run = run_parts("fedavg", tiny, diagnose="gradients", rounds=1)
    assert numbers(run, "cohort_gap")[0, None] == pytest.approx(0, abs=1e-9)
    assert numbers(run, "alignment")[0, None] == pytest.approx(1)
    assert numbers(run, "alignment_cosine")[0, None] == pytest.approx(1)
    other = run_parts("fedavg-uniform", tiny, diagnose="gradients", rounds=1)
    assert numbers(other, "cohort_gap")[0, None] > 1e-4


def test_epsilon_and_alignment_by_hand_when_one_of_two_takes_part():
    # gradients at 0: −1 and −6, ∇F = −3.5; with client 1 alone ε = 2.5 and alignment 6·3.5/3.5²
    run = run_parts("fedavg", quadratics([1, 3], [1, 2]), diagnose="gradients", rounds=1, selection="list([1])",
                    **{**STEP, "cohort": None})  # fmt: skip
    assert numbers(run, "cohort_gap")[0, None] == pytest.approx(2.5)
    assert numbers(run, "alignment")[0, None] == pytest.approx(6 / 3.5)
    assert numbers(run, "alignment_cosine")[0, None] == pytest.approx(1)  # both gradients point the same way


class Own(nn.Module):
    """Every client has a coordinate of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return x * (self.point - 1)


def test_alignment_as_the_code_has_it_is_one_over_root_m_for_orthogonal_gradients_and_one_for_equal_ones():
    y = torch.zeros(1, dtype=torch.long)
    for rows, expected in ((torch.eye(5), 1 / math.sqrt(5)), (torch.ones(5, 5), 1.0)):
        clients = [(rows[k : k + 1], y, rows[k : k + 1], y) for k in range(5)]
        federation = ud.Federation.from_clients(clients, labels=[str(c) for c in range(5)])
        run = run_parts(
            "fedavg", federation, model=lambda: Own(5), loss=half_square, diagnose="gradients", rounds=1, **STEP
        )
        assert numbers(run, "alignment_code")[0, None] == pytest.approx(expected)


def test_the_pooled_loss_of_many_clients_is_that_of_a_seeded_draw(tiny):
    run = run_parts("fedavg", tiny, diagnose="gradients(most=2)", rounds=1)
    assert numbers(run, "gradient_norm_squared")[0, None] > 0


# ---- drift, objective, bound ---------------------------------------------------------------------------------------


def test_drift_vanishes_with_the_rate_and_is_the_step_on_a_quadratic():
    # one step from 0: η·c·o = 0.1·3·2
    run = run_parts("fedavg", quadratics([3, 3], [2, 2]), diagnose="drift", rounds=1, **STEP)
    assert numbers(run, "drift", "L2")[0, 0] == pytest.approx(0.6)
    assert numbers(run, "drift_cosine", "L2")[0, 1] == pytest.approx(1)
    small = run_parts("fedavg", quadratics([3, 3], [2, 2]), diagnose="drift", rounds=1, **{**STEP, "lr": 1e-6})
    assert numbers(small, "drift", "L2")[0, 0] == pytest.approx(6e-6)


def test_a_client_that_goes_against_the_mean_has_a_negative_cosine():
    run = run_parts("fedavg", quadratics([1, 1, 1], [1, 1, -1]), diagnose="drift", rounds=1, **STEP)
    assert [numbers(run, "drift_cosine", "L2")[0, k] for k in range(3)] == pytest.approx([1, 1, -1])


def test_the_objective_of_a_plain_method_is_twice_the_training_loss():
    # after one step of 0.1 towards 1 and 2 (curvature 1): x = 0.15; F = (0.85² + 1.85²)/4
    run = run_parts("fedavg", quadratics([1, 1], [1, 2]), diagnose="objective", rounds=1, **STEP)
    assert numbers(run, "objective")[0, None] == pytest.approx(2 * (0.85**2 + 1.85**2) / 4, rel=1e-5)


def test_with_gamma_one_the_objective_adds_what_clients_lose_alone_and_what_they_lose_together():
    # alone they hold 0.1 and 0.2; together 0.15
    run = run_parts("fliu(gamma=1.0)", quadratics([1, 1], [1, 2]), diagnose="objective", rounds=1, **STEP)
    alone, together = (0.9**2 + 1.8**2) / 4, (0.85**2 + 1.85**2) / 4
    assert numbers(run, "objective")[0, None] == pytest.approx(alone + together, rel=1e-5)
    assert numbers(run, "loss", "L1")[0, 0] == pytest.approx(0.9**2 / 2, rel=1e-5)


def test_the_label_distance_by_hand():
    assert hellinger([1, 0], [0, 3]) == 1
    assert hellinger([2, 2], [7, 7]) == pytest.approx(0, abs=1e-7)
    assert hellinger([1, 1], [5, 0]) == pytest.approx(math.sqrt(1 - math.sqrt(0.5)))


def test_the_bound_covers_a_test_set_that_is_the_training_set_and_one_that_shares_no_label(tiny):
    x, y = tiny.train(0)
    same = ud.Federation.from_clients([(x, y, x, y)], labels=["a", "b", "c"])
    run = run_parts("fedavg", same, model=tiny.model, diagnose="bound", rounds=1)
    assert numbers(run, "label_distance")[0, 0] == pytest.approx(0, abs=1e-7)
    assert numbers(run, "bound_lower")[0, 0] == pytest.approx(numbers(run, "bound_upper")[0, 0], abs=1e-6)
    assert numbers(run, "bound_covers")[0, None] == 1
    strange = ud.Federation.from_clients([(x, y * 0, x, y * 0 + 1)], labels=["a", "b", "c"])
    run = run_parts("fedavg", strange, model=tiny.model, diagnose="bound", rounds=1)
    assert numbers(run, "label_distance")[0, 0] == 1
    assert (numbers(run, "bound_lower")[0, 0], numbers(run, "bound_upper")[0, 0]) == (0, 1)


def test_a_mean_loss_that_moves_further_than_labels_allow_is_not_covered(tiny):
    """Same labels, but the test pictures are far away: the radius of the labels is 0 and the bound cannot hold."""
    x, y = tiny.train(0)
    far = ud.Federation.from_clients([(x, y, -x * 5, y)], labels=["a", "b", "c"])
    run = run_parts("fedavg", far, model=tiny.model, diagnose="bound", rounds=1)
    assert numbers(run, "bound_covers")[0, None] == 0
    L2, V = numbers(run, "loss_mean_squared")[0, 0], numbers(run, "loss_variance")[0, 0]
    assert 0 < L2 < 1
    assert 0 <= V < 0.25
