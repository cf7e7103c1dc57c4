"""Laws of FedBSS."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from undrift import testing
from undrift.core.errors import BadRequest
from undrift.methods import sampling
from undrift.methods.sampling.fedbss import regimes
from undrift.report.moves import moves
from undrift.report.traces import traces
from undrift.testing import run_parts


@pytest.fixture
def client(job, planned):
    """A client after the warm-up whose received model has given losses and uncertainties."""

    def make(loss, u=None, epochs=10, batch=1, **facts):
        loss = torch.tensor(loss, dtype=torch.float32)
        u = torch.zeros(len(loss)) if u is None else torch.tensor(u)
        # two classes with probabilities (1 ± (1 − u))/2, so that max p − min p = 1 − u
        p = torch.stack([1 - u / 2, u / 2], 1).clamp(1e-6, 1)
        survey = SimpleNamespace(loss=loss, logits=p.log())
        plan = planned(epochs=epochs, batch=batch)
        given = {
            "n": len(loss),
            "labels": torch.arange(len(loss)) % 3,
            "targets": torch.arange(len(loss)) % 3,
            "scored": lambda role: {"received": survey}[role],
        }
        return job(plan=plan, **{**given, **facts})

    return make


def picks(part, client, epochs=10):
    course = part.before_training(client, None, {})
    return [part.epoch_indices(client, course, epoch).tolist() for epoch in range(epochs)]


def test_the_boundary_is_the_loss_of_the_most_uncertain_sample(client):
    at = client([0.1, 0.9, 0.5, 2.0, 1.0], u=[0.1, 0.2, 0.8, 0.3, 0.4])  # the third is the most uncertain
    _, unbiased, _ = sampling.fedbss(T1=0).before_training(at, None, {})
    assert unbiased == 2  # 0.1 and 0.5
    assert at.notes["S_mid"] == pytest.approx(0.5)
    assert at.notes["biased"] == pytest.approx(3 / 5)


def test_the_biased_set_is_noted_by_class_and_the_survey_by_a_few_samples(client):
    at = client([0.1, 0.9, 0.5, 2.0, 1.0], u=[0.1, 0.2, 0.8, 0.3, 0.4])  # labels 0 1 2 0 1; V = 1, 4, 3
    sampling.fedbss(T1=0).before_training(at, None, {})
    assert at.notes["biased_labels"].tolist() == [1, 2, 0]
    survey = at.notes["survey"]
    assert survey["loss"] == pytest.approx([0.1, 0.5, 0.9, 1.0, 2.0])
    assert survey["uncertainty"] == pytest.approx([0.1, 0.8, 0.2, 0.4, 0.3], abs=1e-4)
    many = client([float(k) for k in range(101)] + [math.nan])
    sampling.fedbss(T1=0).before_training(many, None, {})
    # 16 of the 101 finite ones, evenly spaced by rank: 0, 100/15, …, 100
    assert many.notes["survey"]["loss"] == [float(round(100 * i / 15)) for i in range(16)]


def test_the_three_stages_of_uncertainty_are_means_of_tenths():
    u = torch.tensor([0.0, 0.1] + [0.5] * 6 + [0.9, 0.7] + [0.5] * 8 + [0.2, 0.4])
    found = regimes(u, boundary=9)  # of 20 samples a tenth are two; the ninth is the most uncertain
    assert found == {"uncertainty_easy": 0.05, "uncertainty_middle": 0.7, "uncertainty_hard": 0.3}
    assert regimes(torch.tensor([-torch.inf]), 1) == {}


def test_every_sample_of_one_client_is_noted_on_request(client):
    losses = [float(k) for k in range(40)]  # where the most uncertain has the largest loss, nothing is biased
    at = client(losses[::-1], u=[0.9] + [0.1] * 39, client=3)
    sampling.fedbss(T1=0, survey_of=3).before_training(at, None, {})
    assert at.notes["survey"]["loss"] == losses
    assert at.notes["biased_samples"].tolist() == []
    at = client(losses[::-1], u=[0.1] * 37 + [0.9, 0.1, 0.1], client=3)  # loss 2 is the boundary, at position 37
    sampling.fedbss(T1=0, survey_of=3).before_training(at, None, {})
    assert at.notes["biased_samples"].tolist() == list(range(37))
    other = client(losses, client=2)
    sampling.fedbss(T1=0, survey_of=3).before_training(other, None, {})
    assert len(other.notes["survey"]["loss"]) == 16
    assert "biased_samples" not in other.notes


def test_traces_say_which_samples_change_sides_between_the_rounds(tiny):
    run = run_parts("fedbss(T1=0, survey_of=2)", tiny, rounds=4, epochs=2)
    sets = {round: set(positions) for round, client, positions in run.notes("biased_samples") if client == 2}
    assert sorted(sets) == [0, 1, 2, 3]
    found = moves({round: {2: sorted(positions)} for round, positions in sets.items()})
    for move in found:
        assert set(move.joined) == sets[move.round] - sets[move.before]
        assert set(move.left) == sets[move.before] - sets[move.round]
    assert [(move.before, move.round) for move in found] == [(0, 1), (1, 2), (2, 3)]
    shown = str(traces(run.store.record.all)["sampling.fedbss.biased_samples"].text)
    assert len(shown.splitlines()) == 4
    with pytest.raises(BadRequest, match="clients are numbered 0 to 3"):
        run_parts("fedbss(survey_of=4)", tiny)


def test_the_first_epoch_takes_the_easiest_and_the_last_takes_all(client):
    losses = [0.4, 0.1, 0.3, 0.2, 5.0, 3.0, 4.0, 1.0, 2.0, 6.0]
    u = [0.9] + [0.1] * 9  # S_mid = 0.4: U = {1, 3, 2, 0}, V by loss = 7 8 5 6 4 9
    rounds = picks(sampling.fedbss(T1=0), client(losses, u))
    assert rounds[0] == [1, 3, 2, 0]  # α₁ |V| = 0.024 · 6: no sample
    assert rounds[4] == [1, 3, 2, 0, 7, 8, 5]  # α₅ = ½, exactly half of V
    assert rounds[-1] == [1, 3, 2, 0, 7, 8, 5, 6, 4, 9]
    assert all(set(a) <= set(b) for a, b in itertools.pairwise(rounds))


@pytest.mark.parametrize("epochs", [2, 4, 6, 10, 20, 50])
def test_counts_are_exact_where_the_share_is_a_round_number(client, epochs):
    losses = [0.0] + [float(k) for k in range(1, 101)]  # U = {0}, |V| = 100
    at = client(losses, u=[0.9] + [0.1] * 100, epochs=epochs)
    cosine, linear = (picks(sampling.fedbss(T1=0, pacing=p), at, epochs) for p in ("cosine", "linear"))
    assert len(cosine[epochs // 2 - 1]) == 51
    assert len(cosine[-1]) == 101
    assert [len(taken) for taken in linear] == [1 + 100 * e // epochs for e in range(1, epochs + 1)]


def test_the_mean_share_of_ten_epochs_is_0_55():
    part = sampling.fedbss()
    assert sum(part.pace(e, 10) for e in range(1, 11)) / 10 == pytest.approx(0.55)


def test_filter_takes_the_unbiased_only(client):
    at = client([0.0, 1.0, 2.0, 3.0], u=[0.1, 0.9, 0.1, 0.1])
    assert picks(sampling.fedbss(T1=0, pacing="filter"), at) == [[0, 1]] * 10


def test_ties_of_uncertainty_take_the_smallest_loss(client):
    at = client([3.0, 1.0, 2.0, 4.0], u=[0.5, 0.5, 0.5, 0.1])
    assert sampling.fedbss(T1=0).before_training(at, None, {})[1] == 1
    assert at.notes["S_mid"] == 1.0


def test_a_boundary_at_the_smallest_loss_is_enlarged_to_a_batch_and_noted(client):
    at = client([1.0, 2.0, 3.0, 4.0, 5.0], u=[0.9, 0.1, 0.1, 0.1, 0.1], batch=3)
    assert sampling.fedbss(T1=0).before_training(at, None, {})[1] == 3
    assert at.notes["enlarged_from"] == 1
    single = client([1.0], batch=32)
    assert picks(sampling.fedbss(T1=0), single) == [[0]] * 10


def test_a_loss_that_is_not_finite_comes_last_and_never_sets_the_boundary(client):
    at = client([math.nan, 1.0, math.inf, 0.5], u=[0.9, 0.8, 0.9, 0.1])
    order, unbiased, _ = sampling.fedbss(T1=0).before_training(at, None, {})
    assert order.tolist() == [3, 1, 0, 2]
    assert unbiased == 2
    assert picks(sampling.fedbss(T1=0), client([math.nan] * 3)) == [[0, 1, 2]] * 10


def test_other_boundaries_by_hand(client, planned):
    at = client(
        [0.1, 0.2, 0.3, 0.4, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], u=[0.1, 0.2, 0.3, 0.4, 0.9, 0.8, 0.7, 0.1, 0.1, 0.1]
    )
    count = {
        "ratio": sampling.fedbss(T1=0, boundary="ratio", level=0.7).before_training(at, None, {})[1],
        "loss": sampling.fedbss(T1=0, boundary="loss", level=0.35).before_training(at, None, {})[1],
        "top": sampling.fedbss(T1=0, boundary="top", level=3).before_training(at, None, {})[1],  # median of 5, 6, 7
    }
    assert count == {"ratio": 7, "loss": 3, "top": 6}
    assert sampling.fedbss(boundary="ratio").resolve(planned()).level == 0.7


def test_controls_have_the_same_counts_in_another_order(client):
    losses = [float(k) for k in range(40)]  # where the most uncertain has the largest loss, nothing is biased
    u = [0.1] * 9 + [0.9] + [0.1] * 30
    plain, random, matched = (
        picks(sampling.fedbss(T1=0, order=o), client(losses, u)) for o in ("loss", "random", "matched")
    )
    assert [len(x) for x in plain] == [len(x) for x in random] == [len(x) for x in matched]
    assert plain[0] == list(range(10))
    assert set(random[0]) != set(plain[0])
    assert all(set(a) <= set(b) for a, b in itertools.pairwise(random))
    assert not all(set(a) <= set(b) for a, b in itertools.pairwise(matched))
    assert sorted(random[-1]) == sorted(matched[-1]) == list(range(40))


def test_the_warm_up_is_uniform_averaging_bit_for_bit_and_then_it_differs(tiny):
    warm, plain = (run_parts(m, tiny, rounds=3, epochs=4) for m in ("fedbss(T1=3)", "fedavg-uniform"))
    assert torch.equal(warm.vector, plain.vector)
    assert not torch.equal(run_parts("fedbss(T1=2)", tiny, rounds=3, epochs=4).vector, plain.vector)


def test_with_one_epoch_it_is_plain_training_and_warns(tiny):
    run = run_parts("fedbss(T1=0)", tiny, epochs=1)
    assert [("one local epoch" in sentence) for sentence in run.setup.notices] == [True]
    easiest = run_parts("fedavg-uniform", tiny, epochs=1)
    assert torch.allclose(run.vector, easiest.vector, atol=0.2)  # the same samples, shuffled from another order
    assert run.notes("S_mid")


def test_it_warns_where_the_run_ends_in_the_warm_up(planned):
    plan = planned(rounds=4, epochs=2)
    assert ["warms up" in p.sentence for p in sampling.fedbss(T1=4).check(plan)] == [True]
    assert list(sampling.fedbss().resolve(plan).check(plan)) == []
    assert sampling.fedbss().resolve(planned(rounds=200)).T1 == 50


def test_the_biased_set_holds_no_sample_that_is_classified_clearly(tiny):
    # ℓ_i ≤ −ln(max p* − min p*) for every correct i, p* the most uncertain sample's softmax, as far as ℓ* allows:
    # a correct sample's p_y is its largest probability, and max p − min p is at least the most uncertain one's.
    run = run_parts("fedbss(T1=0)", tiny, rounds=1)
    runtime = run.setup.runtime
    for client in range(4):
        x, y = runtime.train(client)
        runtime.model.load(runtime.initial)
        runtime.model.module.eval()
        p = runtime.model(x).softmax(1)
        gap = (p.amax(1) - p.amin(1)).min()
        correct = p.argmax(1) == y
        assert (-p[correct, y[correct]].log() <= -gap.log() + 1e-6).all()


def test_one_sample_and_one_class_clients_are_fine():
    run = run_parts("fedbss(T1=0)", testing.tiny(sizes=[1, 2, 30, 40]), rounds=2)
    assert torch.isfinite(run.vector).all()
    assert run.events == []


@pytest.mark.parametrize(
    "values",
    [
        {"T1": -1}, {"boundary": "x"}, {"pacing": "x"}, {"order": "x"}, {"boundary": "ratio", "level": 1.5},
        {"boundary": "top", "level": 0.5}, {"boundary": "loss", "level": math.inf},
    ],
)  # fmt: skip
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="fedbss: "):
        sampling.fedbss(**values)
