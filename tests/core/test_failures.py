"""When something goes wrong: the record says who was left out and why, or the run stops with all there is to know."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.contract.parts import Objective, Weighting
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.resume import resume
from undrift.testing import run_parts
from undrift.testing import tiny as make_tiny


def ill(client, rows=slice(None)):
    federation = make_tiny()
    federation.x = federation.x.clone()
    federation.x[federation.rows(client)[rows]] = torch.nan
    return federation


def test_a_part_and_a_module_defined_here_run():
    @dataclass(frozen=True)
    class Own(Weighting):
        power: float = 2.0

        def weights(self, server, replies):
            return torch.tensor(replies.n, dtype=torch.float64) ** self.power

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.only = nn.Linear(5, 3)

        def forward(self, x):
            return self.only(x)

    federation = make_tiny()
    result = ud.run(Own(), federation, model=Net, rounds=2, out=False)
    assert result.setup.method.name == "own"
    assert isinstance(result.model, Net)
    assert isinstance(ud.run(Own(), federation, model=Net(), rounds=2, out=False).model, Net)


@dataclass(frozen=True)
class Raises(Objective):
    def gradient(self, P, G, batch, job, scratch):
        if job.client == 2 and job.round == 1:
            raise ZeroDivisionError("my own words")


def test_a_part_that_raises_stops_the_run_with_client_round_and_its_own_traceback():
    with pytest.raises(RunFailed) as caught:
        run_parts(Raises(), make_tiny())
    sentence = str(caught.value)
    assert "client 2" in sentence
    assert "round 1" in sentence
    assert "ZeroDivisionError: my own words" in sentence
    assert "in gradient" in sentence
    assert __file__.rpartition("/")[2] in sentence
    assert "--tolerate" in sentence


def test_tolerate_leaves_the_client_out_and_goes_on():
    run = run_parts(Raises(), make_tiny(), tolerate=True)
    assert run.server_state.round == 3
    assert [(t, k, kind) for t, k, kind, _ in run.events] == [(1, 2, "exception")]
    lost = run_parts("fedavg", make_tiny(), lose={(1, 2)})
    assert torch.equal(run.vector, lost.vector)


def test_a_run_that_stopped_on_an_exception_is_resumable(tmp_path):
    @dataclass(frozen=True)
    class Nameless(Objective):
        """A class inside a function cannot be imported, so run.toml cannot name it."""

        gradient = Raises.gradient

    federation = make_tiny()
    settings = {"model": federation.model, "rounds": 3, "cohort": 1.0}
    with pytest.raises(RunFailed):
        ud.run(Nameless(), federation, out=tmp_path / "run", checkpoint_every=1, **settings)
    with pytest.raises(BadRequest, match="method="):
        resume(tmp_path / "run", federation=federation, model=federation.model)
    result = resume(tmp_path / "run", federation=federation, model=federation.model, method=Nameless(), tolerate=True)
    assert result.summary["rounds"] == 3
    assert [f["client"] for f in result.summary["failures"] if f["kind"] == "exception"] == [2]


def test_another_method_federation_or_model_is_refused_on_resume(tmp_path):
    federation = make_tiny()
    ud.run("fedavg", federation, model=federation.model, rounds=1, out=tmp_path / "run")
    with pytest.raises(BadRequest, match="method"):
        resume(tmp_path / "run", federation=federation, model=federation.model, method="fedprox")
    with pytest.raises(BadRequest, match="data"):
        resume(tmp_path / "run", federation=make_tiny(seed=1), model=federation.model)
    with pytest.raises(BadRequest, match="model"):
        resume(tmp_path / "run", federation=federation, model=lambda: nn.Linear(5, 3))
    with pytest.raises(BadRequest, match="federation="):
        resume(tmp_path / "run", model=federation.model)


def test_a_client_of_nan_is_named_with_the_reason():
    run = run_parts("fedavg", ill(1))
    assert [event[:3] for event in run.events] == [(t, 1, "nonfinite") for t in range(3)]
    assert "not finite" in run.events[0][3]


def test_a_client_too_small_to_be_patient_with_is_still_called_nonfinite():
    """Two steps of two are skipped: fewer than the patience, and yet the reason is NaN."""
    run = run_parts("fedavg", ill(1), batch=64)
    assert [event[:3] for event in run.events] == [(t, 1, "nonfinite") for t in range(3)]


def test_one_bad_batch_is_skipped_and_counts_in_nothing():
    run = run_parts("fedavg", ill(1, slice(0, 1)), epochs=1, batch=8)
    assert run.events == []
    assert torch.isfinite(run.vector).all()


@dataclass(frozen=True)
class Careless(Weighting):
    value: float

    def weights(self, server, replies):
        out = torch.ones(len(replies), dtype=torch.float64)
        out[1] = self.value
        return out


def test_a_weight_that_is_not_finite_leaves_its_client_out():
    run = run_parts(Careless(float("nan")), make_tiny())
    assert [event[:3] for event in run.events] == [(t, 1, "nonfinite") for t in range(3)]
    without = run_parts("fedavg-uniform", make_tiny(), lose={(t, 1) for t in range(3)})
    assert torch.equal(run.vector, without.vector)


def test_a_negative_weight_means_size_weights_for_the_round_and_that_is_said():
    run = run_parts(Careless(-1.0), make_tiny())
    assert [event[2] for event in run.events] == ["weights"] * 3
    assert torch.equal(run.vector, run_parts("fedavg", make_tiny()).vector)


def test_two_runs_cannot_share_a_folder(tmp_path):
    federation = make_tiny()
    ud.run("fedavg", federation, model=federation.model, rounds=1, out=tmp_path / "run")
    with pytest.raises(BadRequest, match=r"run-1 is free.*--force"):
        ud.run("fedavg", federation, model=federation.model, rounds=1, out=tmp_path / "run")
    ud.run("fedavg", federation, model=federation.model, rounds=1, out=tmp_path / "run", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.old-1"]
