"""Every diagnostic has a law of its own, checked by hand on quadratics or on a tiny federation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.evaluate.diagnose import NAMES, counter
from undrift.evaluate.diagnose.features import effective_rank
from undrift.evaluate.diagnose.hessian import top_eigenvalue
from undrift.evaluate.diagnose.landscape import direction
from undrift.methods.scores import SCORES
from undrift.testing import quadratics, run_parts, small_network

STEP = {"epochs": 1, "batch": 1, "evaluate_every": 1, "lr": 0.1}


def numbers(run, metric: str, stage: str = "G", data: str = "train") -> dict:
    return run.metrics(stage, data, metric)


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


def test_fedmas_matching_is_counted_at_the_server(tiny):
    """5-8-3, four clients: three are matched to the reference in the hidden layer, whose 8 units have 5 weights and a bias.
    The distances are one product of 8 × 6 by 6 × 8 (2·8·6·8 operations), the assignment 8³."""
    run = run_parts("fedma", tiny, diagnose="cost", rounds=1)
    assert numbers(run, "server_products")[0, None] == 3 * 2 * 8 * 6 * 8
    assert numbers(run, "server_assignments")[0, None] == 3 * 8**3
    plain = run_parts("fedavg", tiny, diagnose="cost", rounds=1)
    assert numbers(plain, "server_products")[0, None] == numbers(plain, "server_assignments")[0, None] == 0


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
    layout, vector = setup.plan.layout, setup.runtime.initial
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
    runtime, flat = run.setup.runtime, run.setup.runtime.model.twin()
    x, y = (torch.cat([tiny.train(k)[i] for k in range(4)]) for i in (0, 1))
    module = copy.deepcopy(flat.module).double()

    def loss(vector):
        entries = {e.name: vector[e.place].view(e.shape) for e in runtime.plan.layout.entries}
        return nn.functional.cross_entropy(torch.func.functional_call(module, entries, (x.double(),)), y)

    H = torch.autograd.functional.hessian(loss, run.vector.double())
    assert numbers(run, "hessian_top")[0, None] == pytest.approx(torch.linalg.eigvalsh(H)[-1].item(), rel=1e-3)


# ---- another data set, confusion -----------------------------------------------------------------------------------


def test_a_test_set_cannot_be_told_from_itself_and_a_far_one_can(tiny, monkeypatch):
    federation = copy.copy(tiny)
    monkeypatch.setattr("undrift.evaluate.options.other_set", lambda *_: ("itself", tiny.test_x))
    run = run_parts("fedavg", federation, diagnose="ood", rounds=1)
    found = {m: v for m, v in run.store.record.all("SELECT metric, value FROM metrics WHERE data='ood'")}
    assert len(found) == 2 * len(SCORES)
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
    samples_scored = run_parts(method, federation, diagnose=EVERY, **more)
    assert torch.equal(plain.vector, samples_scored.vector)
    for stage, data in (("G", "global"), ("L1", "own"), ("L2", "own")):
        assert plain.metrics(stage, data) == samples_scored.metrics(stage, data)
    assert numbers(samples_scored, "gradient_norm_squared")[2, None] > 0


def test_processes_find_what_inline_finds(tiny, tmp_path):
    from undrift.store.record import rows_of

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
    from undrift.evaluate.options import other_set

    federation = ud.federate("digits", "iid", 3)
    x = np.full((6, 1, 8, 8), 255, dtype=np.uint8)
    other = DataSet(
        "white", x, np.zeros(6, dtype=np.int64), x, np.zeros(6, dtype=np.int64), ("w",), (0.0,), (1.0,), "", ""
    )
    name, rows = other_set(other, federation)
    assert name == "white"
    assert rows.shape == (6, 8, 8, 1)
    assert rows[0, 0, 0, 0].item() == pytest.approx((1 - federation.scale[0][0]) / federation.scale[1][0], rel=1e-5)
