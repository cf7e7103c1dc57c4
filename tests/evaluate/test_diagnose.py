"""Every diagnostic has a law of its own, checked by hand on quadratics or on a tiny federation."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.errors import BadRequest
from undrift.evaluate.diagnose import NAMES, counter
from undrift.evaluate.diagnose.bound import hellinger
from undrift.evaluate.diagnose.features import effective_rank
from undrift.evaluate.diagnose.hessian import top_eigenvalue
from undrift.evaluate.diagnose.landscape import direction
from undrift.testing import half_square, quadratics, run_parts, small_network

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
    other = run_parts("fedavg-uniform", tiny, diagnose="gradients", rounds=1)
    assert numbers(other, "cohort_gap")[0, None] > 1e-4


def test_epsilon_and_alignment_by_hand_when_one_of_two_takes_part():
    # gradients at 0: −1 and −6, ∇F = −3.5; with client 1 alone ε = 2.5 and alignment 6·3.5/3.5²
    run = run_parts("fedavg", quadratics([1, 3], [1, 2]), diagnose="gradients", rounds=1, selection="list([1])",
                    **{**STEP, "cohort": None})  # fmt: skip
    assert numbers(run, "cohort_gap")[0, None] == pytest.approx(2.5)
    assert numbers(run, "alignment")[0, None] == pytest.approx(6 / 3.5)


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


# ---- features ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_effective_rank_of_k_orthogonal_directions_is_k(k):
    way = torch.linalg.qr(torch.randn(9, k, generator=torch.Generator().manual_seed(0))).Q.T
    assert effective_rank(torch.cat([way, -way])) == pytest.approx(k)


def test_the_effective_rank_of_one_point_is_zero_and_scale_does_not_matter():
    assert effective_rank(torch.ones(4, 3)) == 0
    cloud = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    assert effective_rank(cloud) == pytest.approx(effective_rank(7 * cloud + 3))
    assert 5 < effective_rank(cloud) <= 6


def test_the_rank_is_recorded_for_the_global_model_and_for_every_client(tiny):
    run = run_parts("fedavg", tiny, diagnose="features", rounds=1)
    assert 1 <= numbers(run, "effective_rank", data="global")[0, None] <= 8
    assert len(numbers(run, "effective_rank", "L2", "global")) == 4


def test_features_stay_where_they_are_as_the_rate_vanishes(tiny):
    still = run_parts("fedavg", tiny, diagnose="embedding", rounds=1, lr=1e-7)
    assert numbers(still, "feature_shift", "L2", "global")[0, 0] < 1e-4
    moved = run_parts("fedavg", tiny, diagnose="embedding(clients=[2], samples=20)", rounds=1, lr=0.5)
    assert numbers(moved, "feature_shift", "L2", "global")[0, 2] > 0.05
    ((_, client, points),) = moved.notes("points")
    assert client == 2
    assert np.array(points["before"]).shape == np.array(points["after"]).shape == (20, 2)
    assert points["labels"] == tiny.test_y[:20].tolist()


# ---- cost ----------------------------------------------------------------------------------------------------------


def test_the_flops_of_an_mlp_are_those_counted_by_hand(tiny):
    # 5-8-3: forward 2·(40 + 24) per sample; backward the same for the weights and 2·24 for the hidden layer's input
    per_sample = 2 * (40 + 24) * 2 + 2 * 24
    run = run_parts("fedavg", tiny, diagnose="cost", rounds=1)  # two epochs of 24, 29, 34 and 39 samples
    assert [numbers(run, "flops", "L2")[0, k] for k in range(4)] == [per_sample * 2 * n for n in (24, 29, 34, 39)]
    assert numbers(run, "flops")[0, None] == per_sample * 2 * 126


def test_the_counter_sees_nothing_of_a_proximal_term_and_all_of_a_second_model(tiny):
    plain, prox, second = (numbers(run_parts(m, tiny, diagnose="cost", rounds=1), "flops")[0, None]
                           for m in ("fedavg", "fedprox(mu=0.1)", "apfl"))  # fmt: skip
    assert prox == plain
    assert second > 1.9 * plain


def test_elementwise_and_server_work_are_counted_apart(tiny):
    """75 parameters; in batches of 16 two epochs of 24, 29, 34 and 39 samples are 20 steps. A proximal term joins the
    gradients, takes the distance and adds it: three numbers per parameter and step, where FedNolowe's paper has 18 %."""
    client, server = {}, {}
    for name in ("fedavg", "fedprox(mu=0.1)", "fedavgm"):
        run = run_parts(name, tiny, diagnose="cost", rounds=1)
        client[name], server[name] = numbers(run, "elementwise")[0, None], numbers(run, "server")[0, None]
    assert client["fedprox(mu=0.1)"] - client["fedavg"] == 3 * 75 * 20
    assert client["fedavgm"] == client["fedavg"]
    # One number per parameter for each of four answers (the first is made wider and scaled: one more), two to write the
    # sum back and keep it as the next model; and the sum of the weights.
    assert server["fedprox(mu=0.1)"] == server["fedavg"] == (4 + 1 + 2) * 75 + 1
    assert server["fedavgm"] > server["fedavg"]


def test_only_a_diagnostic_that_counts_the_server_slows_it_down():
    assert NAMES["cost"].counts_the_server
    with counter([NAMES["drift"](), NAMES["gradients"]()]) as nothing:
        assert nothing is None
    with counter([NAMES["drift"](), NAMES["cost"]()]) as counted:
        torch.empty(7).fill_(1.0)  # reserving memory writes nothing
    assert counted.numbers == 7


def test_bytes_are_the_model_and_what_parts_declare(tiny):
    model = 4 * (5 * 8 + 8 + 8 * 3 + 3)
    plain = run_parts("fedavg", tiny, diagnose="cost", rounds=1)
    assert numbers(plain, "bytes_up")[0, None] == numbers(plain, "bytes_down")[0, None] == 4 * model
    control = run_parts("scaffold", tiny, diagnose="cost", rounds=1)
    assert numbers(control, "bytes_up", "L2")[0, 0] == 2 * model
    assert numbers(control, "bytes_down", "L2")[0, 0] == 2 * model
    head = run_parts("fedper", tiny, diagnose="cost", rounds=1)
    assert numbers(head, "bytes_up", "L2")[0, 0] == 4 * (5 * 8 + 8)


# ---- landscape, hessian --------------------------------------------------------------------------------------------


def test_the_landscape_at_the_origin_is_the_loss_and_is_drawn_once(tiny):
    run = run_parts("fedavg", tiny, diagnose="landscape(points=5)", evaluate_every=1)
    ((round, client, surface),) = run.notes("surface")
    assert (round, client) == (2, None)
    assert surface["steps"] == [-1, -0.5, 0, 0.5, 1]
    assert surface["loss"][2][2] == pytest.approx(run.metrics("G", "global", "loss")[2, None], rel=1e-6)
    rim = [surface["loss"][i][j] for i in range(5) for j in range(5) if {i, j} & {0, 4}]
    rise = numbers(run, "sharpness_rise", data="global")[2, None]
    assert rise == pytest.approx(np.mean(rim) - surface["loss"][2][2])


def test_a_run_that_stops_early_has_its_landscape_at_the_round_it_stopped():
    held = ud.federate("digits", "dirichlet(1)", 4, validation=0.2)
    more = {"model": "logistic", "evaluate_every": 1, "validation": 0.2, "stop_at": 0.01}
    run = run_parts("fedavg", held, diagnose="landscape(points=3)", **more)
    ((round, _, _),) = run.notes("surface")
    assert round == 0


def test_directions_have_the_length_of_the_models_filters_and_leave_biases_alone(tiny):
    setup = run_parts("fedavg", tiny, rounds=1).setup
    layout, vector = setup.plan.layout, setup.site.initial
    way = direction(layout, vector, torch.Generator().manual_seed(0))
    for name in ("0.weight", "2.weight"):
        assert layout.part(way, name).norm(dim=1) == pytest.approx(layout.part(vector, name).norm(dim=1), rel=1e-5)
    assert not layout.part(way, "0.bias").any()
    other = direction(layout, 3 * vector, torch.Generator().manual_seed(0))
    assert torch.allclose(other, 3 * way)


@pytest.mark.parametrize(("values", "top"), [((3, 1, -5), 3), ((-1, -2, -9), -1), ((2, 2, 0), 2), ((0, 0, 0), 0)])
def test_the_top_eigenvalue_of_a_diagonal_is_its_largest_entry(values, top):
    diagonal = torch.tensor(values, dtype=torch.float64)
    start = torch.randn(3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert top_eigenvalue(lambda v: diagonal * v, start, 500, 1e-9) == pytest.approx(top, abs=1e-3)


def test_the_hessian_of_a_quadratic_is_its_mean_curvature():
    run = run_parts("fedavg", quadratics([1, 4], [0, 1], samples=[1, 3]), diagnose="hessian", rounds=1, **STEP)
    assert numbers(run, "hessian_top")[0, None] == pytest.approx((1 + 3 * 4) / 4, rel=1e-4)


def test_hessian_vector_products_are_differences_of_gradients(tiny):
    """The top eigenvalue of the whole Hessian, built column by column."""
    run = run_parts("fedavg", tiny, diagnose="hessian(steps=500, tolerance=1e-6)", rounds=1)
    site, flat = run.setup.site, run.setup.site.model.twin()
    x, y = (torch.cat([tiny.train(k)[i] for k in range(4)]) for i in (0, 1))
    module = copy.deepcopy(flat.module).double()

    def loss(vector):
        entries = {e.name: vector[e.place].view(e.shape) for e in site.plan.layout.entries}
        return nn.functional.cross_entropy(torch.func.functional_call(module, entries, (x.double(),)), y)

    H = torch.autograd.functional.hessian(loss, run.vector.double())
    assert numbers(run, "hessian_top")[0, None] == pytest.approx(torch.linalg.eigvalsh(H)[-1].item(), rel=1e-3)


# ---- another data set, confusion -----------------------------------------------------------------------------------


def test_a_test_set_cannot_be_told_from_itself_and_a_far_one_can(tiny):
    federation = copy.copy(tiny)
    federation.ood = ("itself", tiny.test_x)
    run = run_parts("fedavg", federation, diagnose="ood", rounds=1)
    found = {m: v for m, v in run.vault.record.all("SELECT metric, value FROM metrics WHERE data='ood'")}
    assert len(found) == 14
    assert all(value == 0.5 for metric, value in found.items() if metric.startswith("auroc:"))
    assert all(value >= 0.95 for metric, value in found.items() if metric.startswith("fpr95:"))


def test_the_confusion_counts_the_test_set_class_by_class(tiny):
    run = run_parts("fedavg", tiny, diagnose="confusion", rounds=1)
    ((_, _, found),) = run.notes("counts")
    counts = np.array(found["counts"])
    assert counts.sum(1).tolist() == torch.bincount(tiny.test_y, minlength=3).tolist()
    assert np.trace(counts) / counts.sum() == pytest.approx(run.metrics("G", "global")[0, None])


# ---- all of them ---------------------------------------------------------------------------------------------------

EVERY = "+".join(name for name in NAMES if name != "ood")


@pytest.mark.parametrize(
    "method", ["flood(T=1)+scaffold", "fedbss(T1=0)+fliu", "apfl", "fedmr(T1=0)", "fedfomo", "median", "fedlaw"]
)
def test_looking_changes_nothing(tiny, method):
    more = {"cohort": 3, "evaluate_every": 2, "evaluate_clients": "all"}
    if method == "fedlaw":
        federation = ud.federate("digits", "dirichlet(0.5)", 5, proxy=0.05)
        more["model"] = "mlp(8)"
    else:
        federation = tiny
    plain = run_parts(method, federation, **more)
    looked = run_parts(method, federation, diagnose=EVERY, **more)
    assert torch.equal(plain.vector, looked.vector)
    for stage, data in (("G", "global"), ("L1", "own"), ("L2", "own")):
        assert plain.metrics(stage, data) == looked.metrics(stage, data)
    assert numbers(looked, "gradient_norm_squared")[2, None] > 0


def test_processes_find_what_inline_finds(tiny, tmp_path):
    from undrift.result import rows_of

    found = []
    for engine in ("inline", "processes"):
        ud.run("flood(T=1)+fliu", tiny, model=tiny.model, rounds=2, cohort=3, evaluate_every=1, diagnose=EVERY,
               engine=engine, out=tmp_path / engine)  # fmt: skip
        found.append([rows_of(tmp_path / engine, f"SELECT * FROM {table} ORDER BY {order}") for table, order in (
            ("metrics", "round, client, stage, data, metric"), ("notes", "round, client, part, name, value"))])  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"diagnose": "gradient"}, "did you mean gradients"), ({"diagnose": "drift+drift"}, "twice"),
        ({"diagnose": "landscape(points=4)"}, "odd"), ({"diagnose": "hessian(samples=0)"}, "positive"),
        ({"diagnose": "ood"}, "--ood"), ({"diagnose": "gradients", "method": "fedper"}, "private"),
        ({"diagnose": "embedding(clients=[99])"}, "no client 99"), ({"ood": "digits"}, "the run trains on"),
        ({"ood": "nowhere"}, "unknown data set"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_diagnosed_is_refused_before_the_first_round(options, word):
    with pytest.raises(BadRequest, match=word):
        ud.run(options.pop("method", "fedavg"), clients=4, rounds=1, out=False, model="mlp(8)", **options)


def test_a_model_without_weights_has_no_landscape():
    with pytest.raises(BadRequest, match="no trainable weight"):
        run_parts("fedavg", quadratics([1], [1]), diagnose="landscape", rounds=1)


def test_features_of_a_model_without_a_head_are_refused(tiny):
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = small_network(5, 3)

        def forward(self, x):
            return self.body(x) * 2

    with pytest.raises(BadRequest, match="last linear layer"):
        run_parts("fedavg", tiny, model=Bare, diagnose="features")


def test_an_other_set_of_another_shape_is_refused_with_those_that_fit(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros((20, 3), dtype=np.float32), y=np.arange(20) % 2)
    with pytest.raises(BadRequest, match="shape"):
        ud.run("fedavg", clients=4, rounds=1, out=False, model="mlp(8)", ood=str(tmp_path / "other.npz"))


def test_another_set_is_standardised_as_the_training_data():
    from undrift.data.dataset import DataSet
    from undrift.evaluate.asked import other_set

    federation = ud.federate("digits", "iid", 3)
    x = np.full((6, 1, 8, 8), 255, dtype=np.uint8)
    other = DataSet(
        "white", x, np.zeros(6, dtype=np.int64), x, np.zeros(6, dtype=np.int64), ("w",), (0.0,), (1.0,), "", ""
    )
    name, rows = other_set(other, federation)
    assert name == "white"
    assert rows.shape == (6, 8, 8, 1)
    assert rows[0, 0, 0, 0].item() == pytest.approx((1 - federation.scale[0][0]) / federation.scale[1][0], rel=1e-5)
