"""Laws of the personal methods: FLIU, local training, APFL, FedFomo, FedRep, FedPer, FedBN."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from undrift import personalize, testing
from undrift.declare import read
from undrift.errors import BadRequest
from undrift.federation import Federation
from undrift.testing import quadratics, run_parts, small_network


def normed():
    return small_network(5, 3, norm=True)


# ---- FLIU ----------------------------------------------------------------------------------------------------------


def test_gamma_zero_is_fedavg_with_the_same_weights_bit_for_bit(tiny):
    for mark, plain in (("", "fedavg-uniform"), ("@size", "fedavg")):
        runs = [run_parts(m, tiny, rounds=4, model=normed) for m in (f"fliu(gamma=0){mark}", plain)]
        assert torch.equal(runs[0].vector, runs[1].vector)


def test_gamma_one_is_local_training_under_full_participation_bit_for_bit(tiny):
    runs = [run_parts(m, tiny, rounds=4, model=normed) for m in ("fliu(gamma=1)", "local@uniform")]
    assert torch.equal(runs[0].vector, runs[1].vector)
    for client in range(4):
        assert torch.equal(runs[0].state(client), runs[1].state(client))


def test_gamma_at_its_five_thresholds_is_strict(planned):
    plan, part = planned(clients=10, total=1000), personalize.fliu()  # the mean share is 100 samples
    sizes = [1, 50, 51, 100, 101, 500, 501, 1000, 1001]
    gammas = [0.1, 0.1, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 0.9]
    assert [part.share_of_self(n, plan) for n in sizes] == gammas


def test_training_starts_from_the_mix(job):
    received, own = torch.tensor([1.0, 2.0, math.inf]), torch.tensor([3.0, 2.0, math.inf])
    client = job(received=received, n=1)
    mixed = personalize.fliu(gamma=0.25).begin(client, own, {})
    assert mixed.tolist() == [1.5, 2.0, math.inf]  # a buffer may be infinite by design
    assert client.notes == {"gamma": 0.25}


def test_a_client_seen_for_the_first_time_takes_what_it_receives(job):
    client = job(received=torch.tensor([4.0]), n=1)
    assert personalize.fliu().first(client).item() == 4.0


def test_shuffled_gammas_are_the_same_gammas_of_other_clients():
    uneven = testing.tiny(clients=6, sizes=[8, 60, 10, 12, 30, 90])
    plain, shuffled = (run_parts(m, uneven, rounds=3) for m in ("fliu", "fliu(shuffle=true)"))
    of = shuffled.memory["of"].tolist()
    used = {c: v for r, c, v in plain.notes("gamma") if r == 2}
    mixed = {c: v for r, c, v in shuffled.notes("gamma") if r == 2}
    assert of != list(range(6))
    assert mixed == {c: used[of[c]] for c in range(6)}
    assert not torch.equal(plain.vector, shuffled.vector)


def test_fixed_names_are_fixed_gammas(tiny):
    for name, gamma in (("fliu10", 0.1), ("fliu25", 0.25), ("fliu50", 0.5), ("fliu75", 0.75), ("fliu90", 0.9)):
        run = run_parts(name, tiny, rounds=1)
        assert {value for _, _, value in run.notes("gamma")} == {gamma}


@pytest.mark.parametrize(
    "values",
    [{"gamma": 1.1}, {"gamma": -0.1}, {"steps": ()}, {"steps": ((1.0, 0.5),)}, {"steps": ((0.0, 2.0),)},
     {"steps": ((0.5, 0.1), (1.0, 0.2), (0.0, 0.3))}],
)  # fmt: skip
def test_bad_values_of_fliu_are_refused(values):
    with pytest.raises(BadRequest, match="fliu: "):
        personalize.fliu(**values)


# ---- local ---------------------------------------------------------------------------------------------------------


def test_local_training_is_training_alone_from_the_initial_model(tiny):
    # Client 2 alone in the federation, with the same draws: FedAvg of one client is local training.
    together = run_parts("local", tiny, rounds=4)
    alone = run_parts("fedavg", tiny, rounds=4, selection="list([2])", cohort=None)
    assert torch.equal(together.state(2), alone.vector)


def test_a_late_client_starts_from_the_initial_model_too(tiny):
    # Client 0 is lost in rounds 0 and 1: nothing of it is committed, so in round 2 it starts from Θ⁰.
    late = run_parts("local", tiny, rounds=3, lose={(0, 0), (1, 0)})
    first = run_parts("local", tiny, rounds=3, lose={(0, 0), (1, 0)}, selection="list([0])", cohort=None)
    assert torch.equal(late.state(0), first.state(0))
    assert not torch.equal(late.state(0), run_parts("local", tiny, rounds=3).state(0))


def test_clt_is_local(tiny):
    assert torch.equal(run_parts("clt", tiny).vector, run_parts("local", tiny).vector)


def test_local_models_are_the_same_at_both_stages(tiny):
    run = run_parts("local", tiny, rounds=2, evaluate_every=1)
    for data in ("own", "global"):
        assert run.metrics("L1", data) == run.metrics("L2", data)


# ---- APFL ----------------------------------------------------------------------------------------------------------


def test_apfl_leaves_the_global_model_alone(tiny):
    for variant in ("pfllib", "official"):
        run = run_parts(f"apfl(variant={variant})", tiny, rounds=3, model=lambda: small_network(5, 3, dropout=0.3))
        plain = run_parts("fedavg", tiny, rounds=3, model=lambda: small_network(5, 3, dropout=0.3))
        assert torch.equal(run.vector, plain.vector)


def test_alpha_falls_by_hand_where_both_models_are_the_same():
    # v = w throughout, so only 0.02 α is left: α ← 0.5 (1 − 0.1 · 0.02) per step; 3 steps, then official moves once.
    federation = quadratics([1.0], [1.0])
    own = run_parts("apfl", federation, rounds=1, epochs=3)
    assert own.state(0)["alpha"] == pytest.approx(0.5 * (1 - 0.002) ** 3, rel=1e-6)


def test_pfllib_alpha_and_model_by_hand():
    # One client, (x − 1)²/2, η = 0.1. Second round: w from 0.1 (after one step of the mean), v as left behind.
    run = run_parts("apfl(alpha0=0.5)", quadratics([1.0, 1.0], [1.0, -1.0]), rounds=2, epochs=1)
    # round 0: w₀ = v₀ = 0 → 0.1 for client 0 (gradient −1), α ← 0.5 − 0.1 (0 + 0.01) = 0.499; v stays 0.1
    # round 1: w = mean(0.1, −0.1) = 0 → 0.1 (gradient −1); v = 0.1 → 0.19 (gradient −0.9)
    slope = (0.19 - 0.1) * (0.499 * -0.9 + 0.501 * -1.0) + 0.02 * 0.499
    alpha = 0.499 - 0.1 * slope
    assert run.state(0)["alpha"] == pytest.approx(alpha, rel=1e-5)
    assert run.state(0)["v"].item() == pytest.approx(alpha * 0.19 + (1 - alpha) * 0.1, rel=1e-5)
    assert alpha > 0.499  # v is nearer to the client's own optimum: its share grows


def test_official_steps_on_the_mixed_output_and_moves_alpha_once_a_round():
    # The output is x − 1, so the mixed output at v, w is α(v − 1) + (1 − α)(w − 1), and ∇v = α · mixed.
    run = run_parts("apfl(variant=official)", quadratics([1.0], [1.0]), rounds=1, epochs=2)
    w, v, alpha = 0.0, 0.0, 0.5
    mixed = alpha * (v - 1) + (1 - alpha) * (w - 1)  # o_w is that of the batch's own pass
    g_w, g_v = w - 1, alpha * mixed
    w, v = w - 0.1 * g_w, v - 0.1 * g_v
    alpha -= 0.1 * ((v - w) * (alpha * g_v + (1 - alpha) * g_w) + 0.02 * alpha)
    v -= 0.1 * alpha * (alpha * (v - 1) + (1 - alpha) * (w - 1))
    assert run.state(0)["alpha"] == pytest.approx(alpha, rel=1e-5)
    assert run.state(0)["v"].item() == pytest.approx(v, rel=1e-5)


@pytest.mark.parametrize("variant", ["pfllib", "official"])
def test_alpha_grows_where_the_personal_model_is_the_better_one(variant):
    # Optima at ±1: the mean model is 0 for ever, the personal one goes to its own optimum.
    run = run_parts(f"apfl(variant={variant})", quadratics([1.0, 1.0], [1.0, -1.0]), rounds=15, epochs=4)
    alphas = [value for _, client, value in run.notes("alpha") if client == 0]
    assert alphas[-1] > 0.52
    assert min(alphas) == alphas[0]


@pytest.mark.parametrize(("variant", "end"), [("pfllib", 1.0), ("official", 0.0)])
def test_alpha_stays_between_zero_and_one_however_steep_the_slope(variant, end):
    # Optima at ±20. The official form's v moves α times slower than w at first, so α falls at once, and at 0 v is never
    # trained again; PFLlib's v trains on its own loss, and α rises.
    run = run_parts(f"apfl(variant={variant}, alpha0=0.1)", quadratics([1.0, 1.0], [20.0, -20.0]), rounds=10, epochs=4)
    alphas = [value for _, client, value in run.notes("alpha") if client == 0]
    assert all(0 <= alpha <= 1 for alpha in alphas)
    assert end in alphas


def test_alpha_does_not_move_where_it_may_not(tiny):
    run = run_parts("apfl(variant=official, adaptive=false, alpha0=0.3)", tiny)
    assert [value for _, _, value in run.notes("alpha")] == pytest.approx([0.3] * 12)


def test_a_slope_that_is_not_finite_keeps_alpha(job, batch):
    class Broken:
        P = torch.tensor([math.inf])

        def __call__(self, x):
            return x

        def loss(self, logits, y):
            return logits.sum()

        def step(self, loss):
            return torch.zeros(1)

    scratch = {"twin": Broken(), "alpha": torch.tensor(0.4), "moves": True}
    personalize.apfl().also(batch(torch.zeros(2, 1), gradient=torch.ones(1)), job(), scratch)
    assert scratch["alpha"].item() == pytest.approx(0.4)


def test_what_an_apfl_client_holds(job):
    own = {"v": torch.tensor([3.0]), "alpha": 0.25}
    trained = torch.tensor([1.0])
    assert personalize.apfl().holds(job(), own, trained) == [(1.0, own["v"])]
    assert personalize.apfl(variant="official").holds(job(), own, trained) == [(0.25, own["v"]), (0.75, trained)]


def test_the_personal_model_is_trained_on_the_plain_loss(tiny):
    # Weights multiply the global model's loss only: the second model's first round is that of plain training.
    heavy, plain = (run_parts(m, tiny, rounds=1) for m in ("apfl(adaptive=false, alpha0=1)+fedlc", "local"))
    for client in range(4):
        assert torch.allclose(heavy.states(client)["personalize.apfl"]["v"], plain.state(client), atol=1e-6)


def test_bad_values_of_apfl_are_refused():
    for values in ({"variant": "mine"}, {"alpha0": 1.5}):
        with pytest.raises(BadRequest, match="apfl: "):
            personalize.apfl(**values)


# ---- FedFomo -------------------------------------------------------------------------------------------------------


def test_fedfomo_weights_by_hand_for_three_clients(job, planned):
    # L(old) = 2 at 0. Models at 3, −4 and 5 with losses 0.5, 3 and 1: w = 1.5/3, −1/4, 1/5 (each distance + 1e-5).
    losses = {0.0: 2.0, 3.0: 0.5, -4.0: 3.0, 5.0: 1.0}
    layout = SimpleNamespace(trainable=lambda vector: vector[:1])
    models = {1: torch.tensor([3.0, 9.0]), 4: torch.tensor([-4.0, 9.0]), 7: torch.tensor([5.0, 1.0])}
    client = job(plan=SimpleNamespace(layout=layout), loss=lambda vector, on="train": losses[vector[0].item()])
    scratch = personalize.fedfomo().begin(client, {"old": torch.zeros(2), "own": torch.ones(2)}, {"models": models})
    assert scratch["raw"] == pytest.approx({1: 0.5, 4: -0.25, 7: 0.2}, abs=1e-5)
    weights = {"1": 5 / 7, "4": 0.0, "7": 2 / 7}
    assert client.notes["weights"] == pytest.approx(weights, abs=1e-5)
    assert scratch["start"].tolist() == pytest.approx([5 / 7 * 3 + 2 / 7 * 5, 5 / 7 * 9 + 2 / 7], abs=1e-4)


def test_fedfomo_keeps_its_own_model_where_nobody_helps(job):
    layout = SimpleNamespace(trainable=lambda vector: vector)
    client = job(plan=SimpleNamespace(layout=layout), loss=lambda vector, on="train": vector.item())
    own = torch.tensor([0.5])
    state = {"old": torch.zeros(1), "own": own}
    scratch = personalize.fedfomo().begin(client, state, {"models": {3: torch.ones(1), 5: torch.tensor([math.inf])}})
    assert scratch["start"] is own
    assert scratch["raw"][3] < 0
    assert scratch["raw"][5] == 0.0  # not finite counts as nothing
    assert personalize.fedfomo().begin(client, state, {})["start"] is own


def test_fedfomo_judges_on_training_data_where_none_is_held_out(job):
    seen = []

    def loss(vector, on="train"):
        seen.append(on)
        return math.nan if on == "held" else vector.item()

    layout = SimpleNamespace(trainable=lambda vector: vector)
    client = job(plan=SimpleNamespace(layout=layout), loss=loss)
    personalize.fedfomo().begin(client, {"old": torch.ones(1), "own": torch.ones(1)}, {"models": {1: torch.zeros(1)}})
    assert seen == ["held", "train", "train"]


def test_fedfomo_holds_out_a_fifth_and_always_the_same(job):
    part = personalize.fedfomo()
    assert [len(part.reserve(job(n=n))) for n in (1, 4, 5, 24, 100)] == [0, 0, 1, 4, 20]
    assert torch.equal(part.reserve(job(n=50, round=3)), part.reserve(job(n=50, round=4)))


def test_fedfomo_sends_the_most_liked_models_that_exist(server):
    shelf = {
        0: {"model": torch.tensor([0.0]), "likes": {"0": 1.0, "3": 2.0, "9": 99.0, "2": -1.0}},
        2: {"model": torch.tensor([2.0]), "likes": {"2": 1.0}}, 3: {"model": torch.tensor([3.0]), "likes": {"3": 1.0}},
        5: {"model": torch.tensor([5.0]), "likes": {"5": 1.0}},
    }  # fmt: skip
    window = server(shelf=shelf)
    assert list(personalize.fedfomo(M=2).brief(window, 0)["models"]) == [3, 0]  # 9 has no model yet
    assert list(personalize.fedfomo(M=3).brief(window, 0)["models"]) == [3, 0, 5]  # 0 beats −1
    assert personalize.fedfomo().brief(server(), 0) == {"models": {}}
    # a newcomer likes nobody: a seeded draw decides, the same one every time
    drawn = list(personalize.fedfomo(M=2).brief(window, 8)["models"])
    assert drawn == list(personalize.fedfomo(M=2).brief(window, 8)["models"])


def test_fedfomo_adds_raw_likes_to_a_row_that_starts_as_identity(server, replies):
    window, part = server(), personalize.fedfomo()
    for likes in ({}, {4: -0.5, 1: 0.25}, {4: 0.75}):
        part.gather(window, replies(1, ids=[1], messages=[{"likes": likes}]))
    assert window.shelf[1]["likes"] == {"1": 1.25, "4": 0.25}


def test_fedfomo_first_round_is_local_training_on_four_fifths(tiny):
    run = run_parts("fedfomo", tiny, rounds=1)
    assert run.events == []
    initial = run.setup.site.initial
    for client in range(4):
        assert torch.equal(run.state(client)["old"], initial)
        assert not torch.equal(run.state(client)["own"], initial)


def test_fedfomo_runs_and_likes_travel(tiny):
    run = run_parts("fedfomo(M=2)", tiny, rounds=4)
    weights = [value for round, _, value in run.notes("weights") if round > 0]
    assert all(len(value) <= 2 for value in weights)
    assert any(sum(value.values()) == pytest.approx(1) for value in weights)
    message = {"likes": {1: 0.5}}
    assert read("fedfomo", personalize.fedfomo().sends, message, run.setup.plan, torch.clone) == message


def test_bad_values_of_fedfomo_are_refused():
    for values in ({"M": 0}, {"validation": 1.0}):
        with pytest.raises(BadRequest, match="fedfomo: "):
            personalize.fedfomo(**values)


# ---- private entries -----------------------------------------------------------------------------------------------


def test_fedrep_trains_the_head_first_and_the_body_last(job, planned):
    plan = planned(epochs=4)
    head = plan.layout.mask(["2.weight", "2.bias"])[: plan.layout.nP]
    client = job(plan=plan, received=torch.zeros(plan.layout.n))
    masks = [personalize.fedrep(body_epochs=1).trains(client, epoch) for epoch in range(4)]
    assert all(torch.equal(mask, head) for mask in masks[:3])
    assert torch.equal(masks[3], ~head)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1, "momentum": 0.9}, {"optimizer": "adam"}])
def test_fedrep_moves_nothing_that_rests(tiny, options):
    # One epoch of the head, then one of the body: the body after round 0 is that of one epoch from the initial body.
    run = run_parts("fedrep", tiny, rounds=1, epochs=2, **options)
    only_head = run_parts(["personalize.fedrep(body_epochs=1)"], tiny, rounds=1, epochs=2, **options)
    assert not torch.equal(run.vector, run.setup.site.initial)
    head = run.setup.plan.layout.mask(["2.weight", "2.bias"])
    assert torch.equal(run.vector[head], run.setup.site.initial[head])  # private: the server keeps Θ⁰'s
    assert not torch.equal(only_head.vector[head], run.setup.site.initial[head])
    assert torch.equal(only_head.vector[~head], run.vector[~head])


def test_fedrep_without_an_epoch_for_the_head_is_refused(tiny):
    with pytest.raises(BadRequest, match="never trains the head"):
        run_parts("fedrep", tiny, epochs=1)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedprox(mu=0.5)", "feddyn", "scaffold+fedprox"])
def test_an_all_private_client_equals_local_training_bit_for_bit(tiny, method):
    for momentum in (0.0, 0.9):
        private = run_parts([method, 'private.named("*")'], tiny, momentum=momentum, model=normed)
        alone = run_parts("local", tiny, momentum=momentum, model=normed)
        for client in range(4):
            assert torch.equal(private.raw_state(client)["private"]["vector"], alone.state(client))
        assert torch.equal(private.sent, private.setup.site.initial)  # nothing ever left a client


@pytest.mark.parametrize(
    ("name", "entries"), [("fedper", ["3.weight", "3.bias"]), ("fedbn", ["1.weight", "1.running_var"])]
)
def test_private_entries_never_reach_the_server(tiny, name, entries):
    for method in (name, f"{name}+scaffold", f"{name}+feddyn", f"{name}+fedavgm", f"{name}+fliu"):
        run = run_parts(method, tiny, model=normed)
        layout, initial = run.setup.plan.layout, run.setup.site.initial
        for entry in entries:
            assert torch.equal(layout.part(run.sent, entry), layout.part(initial, entry))
        if "scaffold" in method:
            mask = run.setup.plan.private[: layout.nP]
            assert (run.memory[mask] == 0).all()
            assert (run.memory[~mask] != 0).any()


def test_identical_clients_with_private_norms_stay_identical():
    data = testing.tiny()
    rows = [(data.x[:20], data.y[:20], data.x[:4], data.y[:4])] * 2
    same = Federation.from_clients(rows, name="same", labels=["0", "1", "2"])
    run = run_parts("fedbn", same, model=normed, batch=20)
    assert torch.allclose(run.raw_state(0)["private"]["vector"], run.raw_state(1)["private"]["vector"], atol=1e-5)
