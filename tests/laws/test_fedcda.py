"""Laws of FedCDA."""

from __future__ import annotations

import itertools

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.testing import run_parts


def test_one_cached_model_is_uniform_averaging_under_full_participation_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedcda(K=1, warmup=0)", tiny).vector, run_parts("fedavg-uniform", tiny).vector)


def test_the_warm_up_is_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedcda(warmup=3)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_one_cached_model_and_absent_clients_average_the_latest_of_all_that_replied(tiny):
    # Round by round: the mean of every client's latest model, absent ones included.
    run = run_parts("fedcda(K=1, warmup=0)", tiny, rounds=6, cohort=2)
    kind = "shelf/combine.fedcda"
    cached = sorted(client for key, client in run.server_state.versions if key == kind)
    rows = [run.store.states.get(kind, k, run.server_state.versions[kind, k]) for k in cached]
    assert all(len(row["models"]) == 1 for row in rows)
    mean = torch.stack([row["models"][0].double() for row in rows]).mean(0)
    assert torch.allclose(run.vector.double(), mean, rtol=0, atol=1e-6)


def objective(models, losses, L):
    """As printed: mean F + (L/2)[mean ‖w‖² − ‖mean w‖²]."""
    w = torch.stack(models).double()
    spread = w.square().sum(1).mean() - w.mean(0).square().sum()
    return sum(losses) / len(losses) + L / 2 * spread.item()


@pytest.mark.parametrize("L", [0.0, 1.0, 50.0])
def test_the_choice_is_the_best_of_all_combinations(server, planned, L):
    plan = planned()
    draw = torch.Generator().manual_seed(0)

    def model():
        return torch.randn(plan.layout.n, generator=draw)

    rows = [{"models": [model() for _ in range(3)], "losses": torch.rand(3, generator=draw).tolist(), "choice": 2}
            for _ in range(4)]  # fmt: skip
    fixed, absent_losses = [model() for _ in range(2)], [0.3, 0.4]
    part = combine.fedcda(groups=1, L=L)
    part.search(server(plan=plan), rows, sum(v.double() for v in fixed), 2)

    def value(picks):
        chosen = [row["models"][i] for row, i in zip(rows, picks)]
        losses = [row["losses"][i] for row, i in zip(rows, picks)]
        return objective([v[: plan.layout.nP] for v in [*chosen, *fixed]], losses + absent_losses, L)

    best = min(itertools.product(range(3), repeat=4), key=value)
    assert tuple(row["choice"] for row in rows) == best


def test_groups_are_searched_in_turn_with_later_ones_left_out(server, planned):
    # Two clients in groups of one. The first has no other model to be near to and takes its smallest loss; the second
    # takes what is near. Client 1 has 0 (loss 0.1) and 5 (loss 0), client 0 only 1.
    plan = planned()
    at = [torch.full((plan.layout.n,), float(v)) for v in (0.0, 1.0, 5.0)]
    nothing = torch.zeros(plan.layout.n, dtype=torch.float64)

    def chosen(groups, round):
        rows = [{"models": [at[1]], "losses": [0.0], "choice": 0},
                {"models": [at[0], at[2]], "losses": [0.1, 0.0], "choice": 1}]  # fmt: skip
        window = server(plan=plan, stream=lambda purpose: torch.Generator().manual_seed(round))
        combine.fedcda(groups=groups, L=1.0).search(window, rows, nothing, 0)
        first = torch.randperm(2, generator=torch.Generator().manual_seed(round))[0].item()
        return first, rows[1]["models"][rows[1]["choice"]][0].item()

    assert {chosen(2, round) for round in range(8)} == {(0, 0.0), (1, 5.0)}
    assert {value for _, value in (chosen(1, round) for round in range(8))} == {0.0}


def test_rows_keep_the_last_k_models_and_memory_their_sum(tiny):
    run = run_parts("fedcda(K=2, warmup=1)", tiny, rounds=5, cohort=3)
    kind = "shelf/combine.fedcda"
    rows = [run.store.states.get(kind, k, run.server_state.versions[kind, k]) for k in range(4)]
    assert all(1 <= len(row["models"]) <= 2 for row in rows)
    total = sum(row["models"][row["choice"]].double() for row in rows)
    assert torch.allclose(run.memory["total"], total, rtol=0, atol=1e-9)
    assert run.memory["seen"] == 4


def test_a_lost_reply_is_never_cached(tiny):
    run = run_parts("fedcda(warmup=0)", tiny, rounds=1, lose={(0, 2)})
    assert run.memory["seen"] == 3
    assert ("shelf/combine.fedcda", 2) not in run.server_state.versions


def test_weights_and_bad_values_are_refused(tiny):
    with pytest.raises(BadRequest, match="ignores weights"):
        run_parts("fedcda@bound", tiny)
    for values in ({"K": 0}, {"groups": 0}, {"L": -1}, {"warmup": -1}, {"K": 40, "most": 9}):
        with pytest.raises(BadRequest, match="fedcda"):
            combine.fedcda(**values)
