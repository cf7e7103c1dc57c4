"""Laws of FLOOD's client weights (DAC). Three clients with 1, 2 and 5 samples."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.engine.inline import Inline
from undrift.methods import scores, weighting
from undrift.store.run_store import RunStore
from undrift.testing import run_parts

N = [1, 2, 5]


@pytest.fixture
def shares(server, replies, planned):
    def make(values, n=N, ids=None, classes=10, **options):
        facts = {"n": n, "client_messages": [{"phi": value} for value in values], "ids": ids or list(range(len(n)))}
        raw = weighting.flood(**options).weights(server(plan=planned(classes=classes)), replies(len(n), **facts))
        return (raw / raw.sum()).tolist()

    return make


def test_by_hand(shares):
    # (n-share + ½ φ-share) / 1.5 with φ-shares 0.6, 0.3, 0.1
    assert shares([6.0, 3.0, 1.0]) == pytest.approx([(0.125 + 0.3) / 1.5, (0.25 + 0.15) / 1.5, (0.625 + 0.05) / 1.5])


def test_equal_confidence_mixes_size_and_uniform_weights(shares):
    for alpha in (0.0, 0.5, 2.0):
        expected = [(share + alpha / 3) / (1 + alpha) for share in (0.125, 0.25, 0.625)]
        assert shares([4.0, 4.0, 4.0], alpha=alpha) == pytest.approx(expected)
        assert shares([6.0, 3.0, 1.0], alpha=alpha, phi="constant") == pytest.approx(expected)


def test_negative_gen_scores_do_not_reverse_the_ranking_except_as_released(shares):
    phi = [-1.0, -4.0, -7.0]  # the first client is the most confident
    by_rank = shares(phi, n=[1, 1, 1], score="gen")
    assert by_rank[0] > by_rank[1] > by_rank[2]
    low = -scores.gen_floor(10)  # φ + 8.706
    total = 3 * low - 12
    assert by_rank[0] == pytest.approx((1 / 3 + 0.5 * (low - 1) / total) / 1.5)
    released = shares(phi, n=[1, 1, 1], score="gen", norm_phi="sum")
    assert released[0] < released[1] < released[2]


def test_gens_bound_follows_the_number_of_classes(shares):
    few = shares([-0.5, -1.0], n=[1, 1], score="gen", classes=2)
    total = 2 * -scores.gen_floor(2) - 1.5
    assert few[0] == pytest.approx((0.5 + 0.5 * (-scores.gen_floor(2) - 0.5) / total) / 1.5)


def test_a_negative_energy_goes_through_softplus_and_a_tiny_spread_stays_tiny(shares):
    soft = [math.log1p(math.exp(value)) for value in (-1.0, 2.0)]
    assert shares([-1.0, 2.0], n=[1, 1])[0] == pytest.approx((0.5 + 0.5 * soft[0] / sum(soft)) / 1.5)
    close = shares([-1e-6, 1e-6], n=[1, 1])
    assert close == pytest.approx([0.5, 0.5], abs=1e-6)


def test_a_sum_of_zero_is_uniform(shares):
    expected = [(share + 0.5 / 2) / 1.5 for share in (0.5, 0.5)]
    assert shares([1.0, -1.0], n=[1, 1], norm_phi="sum") == pytest.approx(expected)


def test_weights_follow_the_clients_and_not_their_order(shares):
    for phi in ("measured", "constant", "permuted", "reversed"):
        straight = shares([6.0, 3.0, 1.0], phi=phi)
        turned = shares([1.0, 3.0, 6.0], n=N[::-1], ids=[2, 1, 0], phi=phi)
        assert turned[::-1] == pytest.approx(straight)


def test_reversed_and_permuted_confidence(shares):
    assert shares([6.0, 3.0, 1.0], phi="reversed") == pytest.approx(shares([1.0, 4.0, 6.0]))
    phi = [float(k) for k in range(1, 9)]
    permuted, measured = (shares(phi, n=[1] * 8, phi=how) for how in ("permuted", "measured"))
    assert sorted(permuted) == pytest.approx(sorted(measured))
    assert permuted != pytest.approx(measured)


def test_confidence_is_that_of_the_trained_model_on_the_whole_training_set(tiny):
    # With one client the mean is its trained model, so its confidence can be measured afterwards.
    run = run_parts("weighting.flood", tiny, rounds=1, selection="list([2])", cohort=None)
    ((_, client, phi),) = run.notes("phi")
    runtime = run.setup.runtime
    x, _ = runtime.train(2)
    runtime.model.load(run.vector)
    runtime.model.module.eval()
    assert client == 2
    assert phi == pytest.approx(scores.energy(runtime.model(x)).mean().item(), rel=1e-5)


def test_alpha_zero_is_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedavg@flood(alpha=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_one_pass_over_the_data_and_one_number_are_its_cost(tiny):
    part = weighting.flood()
    assert list(part.uplink) == ["phi"]
    assert part.needs == ("class_logits",)
    assert weighting.flood(score="ash-p").needs == ("class_logits", "features")


@pytest.mark.parametrize(
    "values", [{"alpha": -0.1}, {"alpha": math.nan}, {"norm_phi": "max"}, {"score": "x"}, {"phi": "y"}]
)
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest):
        weighting.flood(**values)


def test_as_released_a_weight_may_be_negative_and_moves_the_model_away(tiny):
    """φ = −3, 4 of two clients of one size: φ-shares −3 and 4, so p = (½ − 3/2, ½ + 4/2)/1.5 = (−2/3, 5/3)."""
    run = run_parts("fedavg@flood(norm_phi=sum)", tiny, rounds=1, selection="list([0, 1])", cohort=None)
    store = RunStore(None)
    loop = run.setup.loop(Inline(run.setup.runtime, store.states), store)
    server_round = loop.open_round(loop.begin())
    orders = loop.orders(server_round, [0, 1])
    answers = loop.engine.map(orders)
    for reply, phi in zip(answers, (-3.0, 4.0)):
        reply.client_messages["weighting.flood"], reply.n = {"phi": phi}, 10
    mixed = server_round.next_state(orders, answers).vector
    expected = -2 / 3 * answers[0].vector.double() + 5 / 3 * answers[1].vector.double()
    assert torch.allclose(mixed.double(), expected, atol=1e-6)
    assert server_round.events == []


def test_negative_weights_need_a_plain_mean_and_no_cap(tiny):
    for more, said in (({"combine": "median"}, "median ignores weights"), ({"combine": "fednova"}, "fednova is no plain mean"),
                       ({"weight_cap": 0.5}, "--weight-cap 0.5 cannot bound")):  # fmt: skip
        with pytest.raises(BadRequest, match=said):
            run_parts("fedavg@flood(norm_phi=sum)", tiny, **more)
    assert weighting.mix([weighting.flood(norm_phi="sum"), weighting.size()], [0.5, 0.5]).signed
    assert not weighting.mix([weighting.flood(), weighting.size()], [0.5, 0.5]).signed


def test_a_guard_that_changes_phi_is_noted(server, replies):
    at = server()
    weighting.flood().weights(at, replies(2, client_messages=[{"phi": -1.0}, {"phi": 2.0}]))
    assert at.notes == [("guarded", 1, None)]
    untouched = server()
    weighting.flood().weights(untouched, replies(2, client_messages=[{"phi": 1.0}, {"phi": 2.0}]))
    weighting.flood(norm_phi="sum").weights(untouched, replies(2, client_messages=[{"phi": -1.0}, {"phi": 2.0}]))
    assert untouched.notes == []
