"""Laws of FLIU: what its γ does, and which model a client uses."""

from __future__ import annotations

import math

import pytest
import torch

from undrift import testing
from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import run_parts, small_network


def normed():
    return small_network(5, 3, norm=True)


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
    mixed = personalize.fliu(gamma=0.25).before_start(client, own, {})
    assert mixed.tolist() == [1.5, 2.0, math.inf]  # a buffer may be infinite by design
    assert client.notes == {"gamma": 0.25}


def test_a_client_that_participates_for_the_first_time_takes_what_it_receives(job):
    client = job(received=torch.tensor([4.0]), n=1)
    assert personalize.fliu().init_client(client).item() == 4.0


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
