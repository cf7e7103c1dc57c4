"""Laws of FLOOD's sample weights (ASW)."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import sampling, scores
from undrift.methods.sampling.flood import rank
from undrift.testing import run_parts, small_network


def weights(part, logits, job, batch, round=5, **facts):
    plan = job().plan
    client = job(plan=plan, round=round)
    return part.sample_weights(batch(logits, **facts), client, part.before_training(client, None, {}))


def plateau(**options):
    """λ = 2a = 8 from round 2 on (round 1 has schedule(0) = 0, lifted to the floor)."""
    return sampling.flood(**{"a": 4.0, "T": 1, **options})


# ---- the schedule --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "quarter", "half"),
    [
        ("cosine", 58.58, 200), ("linear", 100, 200), ("quadratic", 25, 100), ("exponential", 287.33, 369.66),
        ("logistic", 28.04, 200),
    ],
)  # fmt: skip
def test_schedules_hit_the_tabulated_values(planned, schedule, quarter, half):
    part, plan = sampling.flood(a=200, T=1000, floor=0, schedule=schedule), planned(rounds=2000)
    at = [part.level(t + 1, plan) for t in (0, 250, 500, 1000, 1500)]  # round t + 1 uses schedule(t)
    assert at == pytest.approx([0, quarter, half, 400, 400], abs=0.005)


def test_the_released_rates_make_the_schedules_steps(planned):
    plan = planned(rounds=2000)
    jump = sampling.flood(a=200, T=1000, floor=0, schedule="exponential", rate=5.0)
    assert jump.level(3, plan) == pytest.approx(400, rel=1e-4)
    step = sampling.flood(a=200, T=1000, floor=0, schedule="logistic", rate=10.0)
    assert [step.level(t + 1, plan) for t in (495, 500, 505)] == pytest.approx([0, 200, 400], abs=1e-6)


def test_round_zero_has_weight_one_and_the_floor_holds(planned):
    plan = planned(rounds=20)
    literal, lifted = (sampling.flood(a=5, T=10, floor=floor) for floor in (0.0, 1.0))
    assert [literal.level(t, plan) for t in (0, 1)] == [1.0, 0.0]
    assert [lifted.level(t, plan) for t in (0, 1)] == [1.0, 1.0]
    assert all(lifted.level(t, plan) == max(1.0, literal.level(t, plan)) for t in range(20))


def test_a_shifted_start_is_the_early_one_later(planned):
    plan = planned(rounds=40)
    early, middle, late = (sampling.flood(T=8, floor=0, start=start) for start in ("early", "middle", "late"))
    for t in range(40):
        assert middle.level(t, plan) == early.level(max(0, t - 10), plan)
        assert late.level(t, plan) == early.level(max(0, t - 20), plan)


def test_a_start_of_the_stop_form_grows_until_the_stop_round(planned):
    plan = planned(rounds=40)
    part = sampling.flood(a=5, T=30, floor=0, start="middle", start_form="stop", schedule="linear")
    assert [part.level(t, plan) for t in (10, 11, 21, 31, 39)] == pytest.approx([1, 0, 5, 10, 10])


def test_the_growth_defaults_to_half_of_the_run_and_is_a_number_afterwards(planned):
    assert sampling.flood().resolve(planned(rounds=51)).T == 26
    assert sampling.flood(T=7).resolve(planned(rounds=51)).T == 7


# ---- who is weighted -----------------------------------------------------------------------------------------------


def test_exactly_the_lowest_samples_up_to_the_quantile_are_weighted(job, batch):
    draw = torch.Generator().manual_seed(0)
    for size in (1, 2, 3, 16, 50, 91, 171, 181):
        for q in (0.0, 0.1, 0.5, 0.7, 1.0):
            logits = torch.randperm(size, generator=draw).float()[:, None]
            w = weights(plateau(q=q, score="maxlogit"), logits, job, batch)
            count = math.floor(q * (size - 1) + 1e-9)
            assert w[logits[:, 0].argsort()].tolist() == [8.0] * count + [1.0] * (size - count)
            assert rank(q, size) == count
    assert [rank(0.7, b) for b in (1, 2, 50, 91, 171, 181)] == [0, 0, 34, 63, 119, 126]


def test_34_of_50_by_energy_and_ties_count_as_in_distribution(job, batch):
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 3, generator=draw)
    w = weights(plateau(), logits, job, batch)
    assert w.tolist().count(8.0) == 34
    assert w.tolist().count(1.0) == 16
    assert scores.energy(logits)[w == 8].max() < scores.energy(logits)[w == 1].min()
    assert (weights(plateau(), torch.zeros(50, 3), job, batch) == 1).all()


def test_a_score_that_is_not_finite_counts_as_the_smallest(job, batch):
    logits = torch.tensor([[1.0], [2.0], [3.0], [4.0], [math.nan], [math.inf]])
    # scores 1 2 3 4 and twice the minimum 1: of six, ⌊0.7 · 5⌋ = 3 lie at or below the rank of τ = 2
    w = weights(plateau(score="maxlogit"), logits, job, batch)
    assert w.tolist() == [8, 1, 1, 1, 8, 8]
    assert (weights(plateau(), torch.full((5, 2), math.nan), job, batch) == 1).all()


def test_no_gradient_flows_through_the_weights(job, batch):
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for control in ("none", "normalised", "mean", "random", "filter"):
        assert not weights(plateau(control=control), logits, job, batch).requires_grad


def test_the_loss_is_divided_by_the_batch_and_not_by_the_weights(tiny):
    # One step of the whole set: with q = 1 all but the most confident of n weigh λ = 8, so the step grows.
    settings = {"rounds": 3, "epochs": 1, "batch": 1000, "lr": 0.01}
    plain = run_parts("fedavg", tiny, **settings)
    heavy = run_parts([plateau(q=1.0)], tiny, **settings)
    grown = (heavy.vector - plain.setup.runtime.initial).norm() / (plain.vector - plain.setup.runtime.initial).norm()
    assert 2.5 < grown < 4  # two rounds at weight 1, one at about 8: (1 + 1 + 8)/3


def test_lambda_one_is_plain_training_bit_for_bit(tiny):
    for score in ("energy", "ash-s"):
        same = run_parts(f"sampling.flood(a=0.5, score={score})", tiny, rounds=4)
        assert torch.equal(same.vector, run_parts("fedavg", tiny, rounds=4).vector)
    both = run_parts("flood(a=0.5, alpha=0)", tiny, rounds=4)
    assert torch.equal(both.vector, run_parts("fedavg", tiny, rounds=4).vector)


def test_the_received_models_scores_give_one_threshold_per_client_and_round(tiny):
    run = run_parts([plateau(scored_by="received", q=0.5)], tiny, rounds=3)
    shares = [value for _, _, value in run.notes("weighted")]
    # sizes 24, 29, 34, 39: exactly ⌊0.5 (n − 1)⌋ of n, in every round and whatever the batches
    assert shares == pytest.approx([11 / 24, 14 / 29, 16 / 34, 19 / 39] * 3)


@pytest.mark.parametrize("scored_by", ["local", "received"])
@pytest.mark.parametrize("score", list(scores.SCORES))
def test_every_score_runs_and_changes_the_result(tiny, score, scored_by):
    run = run_parts(f"flood(score={score}, scored_by={scored_by}, T=1)", tiny, rounds=3)
    assert not torch.equal(run.vector, run_parts("fedavg", tiny, rounds=3).vector)
    assert torch.isfinite(run.vector).all()
    assert run.events == []


# ---- controls ------------------------------------------------------------------------------------------------------


def test_controls_by_hand(job, batch):
    logits = torch.arange(1.0, 12.0)[:, None]  # 11 samples; ⌊0.7 · 10⌋ = 7 weigh 8: mean (7·8 + 4)/11 = 60/11
    given = {"score": "maxlogit"}
    plain = weights(plateau(**given), logits, job, batch)
    assert plain.tolist() == [8.0] * 7 + [1.0] * 4
    assert torch.allclose(weights(plateau(**given, control="normalised"), logits, job, batch), plain * 11 / 60)
    assert torch.allclose(weights(plateau(**given, control="mean"), logits, job, batch), torch.full((11,), 60 / 11))
    assert weights(plateau(**given, control="filter"), logits, job, batch).tolist() == [8.0] * 7 + [0.0] * 4
    drawn = weights(plateau(**given, control="random"), logits, job, batch)
    assert sorted(drawn.tolist()) == sorted(plain.tolist())
    assert drawn.tolist() != plain.tolist()


def test_the_filter_drops_no_sample_before_the_schedule_begins_or_if_none_is_unsure(job, batch):
    part = plateau(control="filter")
    assert (weights(part, torch.randn(20, 3), job, batch, round=0) == 1).all()
    assert (weights(part, torch.randn(2, 3), job, batch) == 1).all()


def test_controls_change_a_run_each_in_its_own_way(tiny):
    vectors = [run_parts([plateau(control=c)], tiny).vector for c in ("none", "normalised", "mean", "random", "filter")]
    assert all(not torch.equal(a, b) for i, a in enumerate(vectors) for b in vectors[:i])


# ---- warnings and notes ------------------------------------------------------------------------------------------


def test_it_warns_where_the_rate_times_the_mean_weight_exceeds_one(planned):
    def problems(**options):
        plan = planned(rounds=100, batch=50, lr=0.01, lr_decay=1.0)
        return [p.sentence for p in sampling.flood(a=200, **options).resolve(plan).check(plan)]

    # 0.01 · (0.68 · 400 + 0.32) = 2.7232, first reached in round 51
    assert ["reaches 2.72 in round 51" in sentence for sentence in problems()] == [True]
    assert problems(control="normalised") == []
    decays = planned(rounds=2000, batch=50, lr=0.01, lr_decay=0.998)
    assert list(sampling.flood(a=200, floor=0).resolve(decays).check(decays)) == []  # the paper's own run peaks at 0.54


def test_the_papers_run_peaks_at_an_effective_rate_of_0_54(planned):
    plan = planned(rounds=2000, batch=50, lr=0.01, lr_decay=0.998)
    part = sampling.flood(a=200, floor=0).resolve(plan)
    rates = [plan.rate(t) * (0.68 * part.level(t, plan) + 0.32) for t in range(2000)]
    assert max(rates) == pytest.approx(0.54, abs=0.01)
    assert rates.index(max(rates)) == pytest.approx(640, abs=15)


def test_it_warns_where_the_run_ends_before_a_weight_rises(planned):
    plan = planned(rounds=10)
    assert ["never lifts" in p.sentence for p in sampling.flood(T=500).check(plan)] == [True]
    assert ["never lifts" in p.sentence for p in sampling.flood(T=4, start="late").check(planned(rounds=2))] == [True]
    assert list(sampling.flood(T=5).check(plan)) == []


def test_it_warns_where_the_growth_lasts_no_round(planned):
    plan = planned(rounds=40)
    jump = sampling.flood(start="late", start_form="stop").resolve(plan)  # from 20 to T = 20
    assert ["lasts no round" in p.sentence for p in jump.check(plan)] == [True]
    assert [jump.level(t, plan) for t in (20, 21)] == [1.0, 10.0]


def test_lambda_tau_share_and_scores_are_noted(tiny):
    run = run_parts([plateau()], tiny, rounds=3)
    assert [v for _, _, v in run.notes("lambda")] == [1.0] * 8 + [8.0] * 4
    for name in ("tau", "weighted", "scores"):
        assert len(run.notes(name)) == 12
    low, _, middle, _, high = run.notes("scores")[-1][2]
    assert low <= middle <= high
    assert low <= run.notes("tau")[-1][2] <= high


def test_scores_that_are_not_finite_are_counted(job, batch):
    part, client = plateau(), job(round=5)
    scratch = part.before_training(client, None, {})
    part.sample_weights(batch(torch.tensor([[1.0, 0.0], [math.nan, 0.0], [3.0, 0.0]])), client, scratch)
    part.after_training(client, scratch, None)
    assert client.notes["nonfinite"] == 1


def test_ash_leaves_the_loss_path_untouched(tiny):
    # At λ = 1 only the path of the loss matters: with BatchNorm, a feature overwritten in place would show.
    def model():
        return small_network(5, 3, norm=True)

    plain = run_parts("fedavg", tiny, model=model)
    for score in ("ash-p", "ash-b", "ash-s"):
        assert torch.equal(run_parts(f"sampling.flood(a=0.5, score={score})", tiny, model=model).vector, plain.vector)


@pytest.mark.parametrize(
    "values",
    [
        {"q": -0.1}, {"q": 1.1}, {"q": math.nan}, {"a": 0.0}, {"a": math.inf}, {"T": 0}, {"floor": -1.0},
        {"schedule": "sine"}, {"start": "soon"}, {"start_form": "jump"}, {"score": "entropy"}, {"scored_by": "server"},
        {"control": "placebo"}, {"rate": 0.0},
    ],
)  # fmt: skip
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest):
        sampling.flood(**values)


def test_ash_on_a_model_without_a_linear_head_is_refused(tiny):
    def headless():
        return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())

    with pytest.raises(BadRequest, match="flood needs the features"):
        run_parts("flood(score=ash-s)", tiny, model=headless)


@pytest.mark.parametrize("options", ["", ", scored_by=received"])
def test_scores_that_a_guard_of_ash_s_changed_are_counted(tiny, monkeypatch, options):
    """With no exponent allowed the guard acts on every sample, in every epoch in which it is scored."""
    monkeypatch.setattr("undrift.methods.scores.ash.LARGEST", 0.0)
    run = run_parts(f"sampling.flood(score=ash-s{options})", tiny, rounds=1, epochs=2)
    passes = 1 if options else 2
    assert {client: value for _, client, value in run.notes("guarded")} == {
        client: passes * int(size) for client, size in enumerate(tiny.sizes)
    }
    assert run_parts(f"sampling.flood(score=energy{options})", tiny, rounds=1).notes("guarded") == []
