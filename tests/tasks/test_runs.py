"""Every task runs everywhere with the same bits: inline, on worker processes, resumed, and at real sites."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.samples import Columns, Ragged
from undrift.experiment.callback import RunCallback
from undrift.testing.task_table import PROBLEMS, problem

SETTINGS = {"rounds": 4, "epochs": 1, "batch": 8, "cohort": 3, "evaluate_every": 2}
METHODS = {"sequence": "flood(T=1)+scaffold@bound", "regression": "scaffold+fliu"}


def run(task: str, method: str = "scaffold", **more):
    return ud.run(
        method, problem(task), model=PROBLEMS[task][1], **{**SETTINGS, "out": False, "engine": "inline", **more}
    )


@pytest.mark.parametrize("task", ["sequence", "regression"])
def test_worker_processes_give_the_bits_of_an_inline_run(task):
    inline, shared = run(task, METHODS[task]), run(task, METHODS[task], engine="processes", workers=2)
    assert torch.equal(inline.vector, shared.vector)
    assert {**inline.summary, "seconds": 0} == {**shared.summary, "seconds": 0}


class Stop(RunCallback):
    def on_round(self, round, rounds, seconds, headline):
        if round == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("task", ["sequence", "regression"])
def test_a_stopped_run_ends_with_the_bits_of_an_undisturbed_one(task, tmp_path):
    whole = run(task, METHODS[task])
    with pytest.raises(KeyboardInterrupt):
        run(task, METHODS[task], out=tmp_path / "run", callback=Stop(), checkpoint_every=1)
    resumed = ud.resume(tmp_path / "run", federation=problem(task), model=PROBLEMS[task][1])
    assert torch.equal(whole.vector, resumed.vector)
    assert resumed.summary["headline"] == whole.summary["headline"]
    assert ud.load(tmp_path / "run", federation=problem(task), model=PROBLEMS[task][1]).headline == whole.headline


@pytest.mark.parametrize("task", PROBLEMS)
def test_the_headline_of_the_summary_is_that_of_the_task(task):
    result = run(task, "fedavg")
    headline, shown = result.summary["headline"], problem(task).task.shown
    assert (headline["name"], headline["better"]) == (shown.name, shown.better)
    assert headline["value"] == result.summary["stages"]["G"][shown.name] == result.headline
    assert (result.accuracy is None) == (task != "classification")
    assert f"L1 {shown.title}(L)" in result.table()
    assert ("Acc" in result.table()) == (task in ("classification", "sequence"))


def test_a_network_takes_columns_by_name():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(8, 4), nn.Linear(5, 2)

        def forward(self, tokens, age):
            return self.out(torch.cat([self.words(tokens).mean(1), age[:, None]], 1))

    def client(seed: int):
        stream = torch.Generator().manual_seed(seed)
        tokens = [torch.randint(0, 7, (n,), generator=stream) for n in (3, 5, 2, 4) * 5]
        x = {"tokens": Ragged(tokens, pad=7), "age": torch.randn(20, generator=stream)}
        return x, (x["age"] > 0).long()

    federation = ud.Federation.from_clients([client(seed) for seed in range(3)])
    inline, shared = (
        ud.run("scaffold+apfl", federation, model=Two, engine=engine, workers=2, **SETTINGS, out=False)
        for engine in ("inline", "processes")
    )
    assert isinstance(federation.x, Columns)
    assert inline.summary["model_sha256"] == shared.summary["model_sha256"]
    assert inline.accuracy is not None


def test_clients_that_load_their_own_sequences():
    samples, network = PROBLEMS["sequence"]

    def load(client: int):
        return samples(torch.Generator().manual_seed(client), client)

    federation = ud.Federation.from_function(load, [30] * 4, load(9), task="sequence(outputs=5)")
    result = ud.run("fedavg", federation, model=network, engine="inline", out=False, **SETTINGS)
    assert result.summary["stages"]["L1"]["clients"] == 3


def test_an_npz_of_sequences_and_of_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    x, y = PROBLEMS["sequence"][0](torch.Generator().manual_seed(0), 0)
    arrays = {"x": x.values, "x.offsets": x.offsets, "x.pad": 5, "y": y.values, "y.offsets": y.offsets, "y.pad": -1}
    np.savez(tmp_path / "text.npz", client=np.arange(30) % 3, **{k: np.asarray(v) for k, v in arrays.items()})
    for _ in range(2):  # decoded, then from the cache
        federation = ud.federate(str(tmp_path / "text.npz"), "natural", task="sequence")
        assert (federation.clients, federation.task.name) == (3, "sequence")
        assert isinstance(federation.x, Ragged)
    settings = {
        "data": str(tmp_path / "text.npz"),
        "partition": "natural",
        "task": "sequence",
        "model": PROBLEMS["sequence"][1],
    }
    first = ud.run("fedavg", rounds=1, out=tmp_path / "run", **settings)
    again = ud.resume(tmp_path / "run", rounds=2, model=PROBLEMS["sequence"][1])
    assert again.summary["rounds"] == first.summary["rounds"] + 1
    np.savez(
        tmp_path / "prices.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=np.arange(40.0), task="regression"
    )
    prices = ud.federate(str(tmp_path / "prices.npz"), "iid", clients=4)
    assert prices.task.name == "regression"
    assert prices.y.dtype == torch.float32
    assert prices.x.mean().abs() < 0.3  # standardised


def test_run_toml_names_the_task_of_the_data(tmp_path):
    result = run("regression", "fedavg", out=tmp_path / "run", rounds=1)
    written = (tmp_path / "run" / "run.toml").read_text()
    assert 'task = "regression(outputs=1, loss=mse, center=0.0, scale=1.0)"' in written
    assert (
        "task"
        not in (run("classification", "fedavg", out=tmp_path / "other", rounds=1).folder / "run.toml").read_text()
    )
    assert result.setup.plan.task.outputs == 1
