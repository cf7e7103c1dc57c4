"""Laws of SCAFFOLD. Two clients minimise (x − 1)²/2 and 3(x + 1)²/2: the uniform optimum is −0.5."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.testing import quadratics, run_parts

FEDERATION = {"curvature": [1.0, 3.0], "optimum": [1.0, -1.0]}  # (1·1 + 3·(−1)) / (1 + 3) = −0.5


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_reaches_the_global_optimum_where_fedavg_stays_biased(momentum):
    settings = {
        "evaluate_every": 100,
        "epochs": 10,
        "rounds": 40,
        "momentum": momentum,
        "lr": 0.02 if momentum else 0.1,
    }
    corrected = run_parts("scaffold", quadratics(**FEDERATION), **settings)
    plain = run_parts("fedavg-uniform", quadratics(**FEDERATION), **settings)
    assert corrected.vector.item() == pytest.approx(-0.5, abs=1e-5)
    assert abs(plain.vector.item() + 0.5) > 0.05


def test_weights_do_not_move_the_limit():
    # Any weighting gives the uniform optimum, because the control's mean is over clients.
    run = run_parts("scaffold@size", quadratics(**FEDERATION, samples=[1, 9]), epochs=5, rounds=40)
    assert run.vector.item() == pytest.approx(-0.5, abs=1e-5)


def test_the_repositorys_scaling_reaches_the_size_weighted_optimum():
    # n = 2 and 3: (2·1·1 + 3·3·(−1)) / (2·1 + 3·3) = −7/11
    run = run_parts("scaffold(scaled=true)", quadratics(**FEDERATION, samples=[2, 3]), epochs=5, rounds=40)
    assert run.vector.item() == pytest.approx(-7 / 11, abs=1e-5)


def test_first_round_is_uniform_averaging_bit_for_bit(tiny):
    for momentum in (0.0, 0.9):
        runs = [run_parts(m, tiny, rounds=1, momentum=momentum) for m in ("scaffold", "fedavg-uniform")]
        assert torch.equal(runs[0].vector, runs[1].vector)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_control_is_the_mean_gradient_of_the_clients_first_round(momentum):
    # The gradient of (x − 1)²/2 at the points x_i that the steps visit; with momentum the i-th gradient moves the model
    # b = 1 + ρ + … times, and a is the sum of these counts.
    run = run_parts("scaffold", quadratics([1.0], [1.0]), epochs=3, rounds=1, momentum=momentum)
    x, v, moved = 0.0, 0.0, 0.0
    for _ in range(3):
        v = momentum * v + (x - 1.0)
        x -= 0.1 * v
    for left in (3, 2, 1):
        moved += sum(momentum**i for i in range(left))
    assert run.state(0).item() == pytest.approx((0.0 - x) / (0.1 * moved), rel=1e-5)
    assert run.state(0).item() != 0


def test_servers_control_is_the_mean_of_the_clients_even_after_a_lost_reply(tiny):
    run = run_parts("scaffold", tiny, rounds=5, lose={(2, 0), (3, 1)})
    mean = torch.stack([run.state(client) for client in range(tiny.clients)]).mean(0)
    assert torch.allclose(run.memory, mean, rtol=0, atol=1e-6)
    assert run.memory.abs().max() > 0.01


def test_a_lost_reply_does_not_shrink_the_step(tiny):
    # The mean is over those who answered: losing client 0 equals a federation in which it never takes part.
    lost = run_parts("scaffold", tiny, rounds=1, lose={(0, 0)})
    absent = run_parts("scaffold", tiny, rounds=1, selection="list([1, 2, 3])", cohort=None)
    assert torch.equal(lost.vector, absent.vector)


def test_the_control_is_divided_by_the_current_rate():
    # With decay 0.5 the second round's rate is 0.05; near a fixed point the control stays the gradient there, −1.
    run = run_parts("scaffold", quadratics([1e-3], [1e3]), epochs=2, rounds=2, lr_decay=0.5)
    assert run.state(0).item() == pytest.approx(-1.0, abs=1e-3)


def test_normalise_divides_the_measured_control_by_the_mean_weight(tiny):
    # a = 0.5·k with floor 0 and a schedule that stands at its end makes λ = k; q = 1 weighs all but one of a batch.
    flood = "sampling.flood(q=1, a=4, T=1, floor=0)"
    runs = {
        n: run_parts(f"scaffold(normalise={n})+{flood}@uniform", tiny, rounds=3, lr=0.01) for n in ("false", "true")
    }
    raw, divided = (torch.stack([runs[n].states(k)["objective.scaffold"] for k in range(4)]) for n in ("false", "true"))
    assert raw.norm() > 2 * divided.norm()


@pytest.mark.parametrize("options", [{"optimizer": "adam"}, {"persist_momentum": True, "momentum": 0.9}])
def test_is_refused_where_the_step_count_has_no_meaning(tiny, options):
    with pytest.raises(BadRequest, match="scaffold needs the normalised step count"):
        run_parts("scaffold", tiny, **options)


def test_is_refused_with_updates_that_are_masked(tiny):
    with pytest.raises(BadRequest, match="scaffold needs the normalised step count"):
        run_parts("scaffold+fedrep", tiny)
