"""`undrift predict` and `undrift export --model`: a run's model on new data and as a file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import undrift as ud
from undrift.data import load
from undrift.store.record import rows_of

NETWORK = """
import torch
from torch import nn
def network():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    module[1].requires_grad_(False)
    return module
"""


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_predictions_on_the_test_set_have_the_runs_own_accuracy(undrift, finished):
    """Law: predicting the test set of the run's data gives stage G's accuracy, exactly."""
    result = undrift("predict", "first", "digits")
    assert result.code == 0, result.err
    assert result.out == "first/predictions.csv: predictions for 360 samples\n"
    found, truth = rows("first/predictions.csv"), load("digits").y_test
    accuracy = np.mean([row["prediction"] == str(label) for row, label in zip(found, truth, strict=True)])
    ((recorded,),) = rows_of(
        Path("first"), "SELECT value FROM metrics WHERE stage='G' AND metric='accuracy' ORDER BY round DESC LIMIT 1"
    )
    assert accuracy == pytest.approx(recorded, abs=1e-9)
    assert list(found[0]) == ["sample", "prediction", *[f"p({label})" for label in range(10)]]
    assert sum(float(found[3][f"p({label})"]) for label in range(10)) == pytest.approx(1, abs=1e-6)


def test_predictions_as_arrays_are_the_models_outputs(undrift, finished):
    x = load("digits").x_test[:7]
    np.savez("new.npz", x=x)
    assert undrift("predict", "first", "new.npz", "--out", "seen.npz").code == 0
    seen = np.load("seen.npz")
    outputs = ud.load("first").predict(x)
    assert np.array_equal(seen["output"], outputs.numpy())
    assert np.array_equal(seen["prediction"], outputs.argmax(1).numpy())
    assert seen["classes"].tolist() == [str(label) for label in range(10)]


def test_numbers_are_predicted_in_the_units_of_the_targets(undrift):
    """Law: the error of the predictions on the test set is stage G's RMSE."""
    run = ("--data", "diabetes", "--clients", "4", "--rounds", "3", "--engine", "inline", "--out", "numbers", "--json")
    recorded = undrift("run", *run, "--quiet").json["headline"]
    assert undrift("predict", "numbers", "diabetes", "--out", "numbers.csv").code == 0
    predicted = np.array([float(row["prediction"]) for row in rows("numbers.csv")])
    truth = np.asarray(load("diabetes").y_test, dtype=np.float64).reshape(-1)
    assert recorded["name"] == "rmse"
    assert np.sqrt(np.mean((predicted - truth) ** 2)) == pytest.approx(recorded["value"], rel=1e-5)


HEAD, *HOUSES = [
    "town,rooms,area,price",
    *(f"{town},{rooms},{area},{40 * area + rooms}" for n in range(12)
      for town, rooms, area in (("ulm", 3 + n % 2, 70 + n), ("bonn", 2, 50 + 2 * n))),
]  # fmt: skip


def test_a_csv_is_read_by_the_names_of_its_columns(undrift):
    """New rows have the columns of the run's file in any order, with or without the target and the client."""
    Path("houses.csv").write_text("\n".join([HEAD, *HOUSES]))
    columns = ("--data", "houses.csv", "--target", "price", "--client-column", "town", "--task", "regression")
    assert undrift("run", *columns, "--rounds", "2", "--clip", "1", "--out", "towns", "--quiet").code == 0
    same = [dict(zip(HEAD.split(","), line.split(","))) for line in HOUSES]
    found = []
    for header in (HEAD, "rooms,area", "area,colour,rooms"):
        lines = [",".join(one.get(name, "red") for name in header.split(",")) for one in same]
        Path("new.csv").write_text("\n".join([header, *lines]))
        done = undrift("predict", "towns", "new.csv", "--out", "out.csv")
        assert done.code == 0, done.err
        found.append(Path("out.csv").read_text())
    assert found[0] == found[1] == found[2]
    predicted = [float(row["prediction"]) for row in rows("out.csv")]
    assert predicted == pytest.approx(ud.load("towns").predict(
        np.array([[float(one["rooms"]), float(one["area"])] for one in same])
    ).mul(ud.load("towns").setup.plan.task.scale).add(ud.load("towns").setup.plan.task.center)[:, 0].tolist())  # fmt: skip
    Path("new.csv").write_text("rooms,price\n3,1\n")
    assert (
        "unknown column of new.csv, which the run's model takes, 'area'" in undrift("predict", "towns", "new.csv").err
    )


SEQUENCES = """
import torch
from torch import nn
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(6, 4), nn.Linear(5, 2)
    def forward(self, tokens, age):
        return self.out(torch.cat([self.words(tokens).mean(1), age[:, None]], 1))
def tokens():
    return nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 5))
"""


def test_predictions_of_sequences_have_the_runs_token_accuracy(undrift):
    """Law: one prediction per token, and right as often as stage G says."""
    Path("mine.py").write_text(SEQUENCES)
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 7, 24)
    values = draw.integers(0, 5, lengths.sum())
    arrays = {f"x{part}": values for part in ("_train", "_test")} | {
        f"y{part}": (values + 1) % 5 for part in ("_train", "_test")
    }
    offsets = np.concatenate([[0], lengths.cumsum()])
    pads = {"x": 5, "y": -1}
    for name in list(arrays):
        arrays |= {f"{name}.offsets": offsets, f"{name}.pad": np.array(pads[name[0]])}
    np.savez("text.npz", **arrays)
    run = ("--data", "text.npz", "--task", "sequence", "--clients", "3", "--model", "mine:tokens", "--rounds", "3")
    done = undrift("run", *run, "--lr", "0.5", "--out", "text", "--quiet", "--json")
    np.savez("new.npz", **{"x": values, "x.offsets": offsets, "x.pad": np.array(9)})  # another pad value is no harm
    assert undrift("predict", "text", "new.npz", "--trust").code == 0
    found = rows("text/predictions.csv")
    assert [(int(row["sample"]), int(row["place"])) for row in found] == [
        (sample, place) for sample, length in enumerate(lengths) for place in range(length)
    ]
    right = np.mean([int(row["prediction"]) for row in found] == (values + 1) % 5)
    assert right == pytest.approx(done.json["headline"]["value"])
    assert undrift("predict", "text", "new.npz", "--trust", "--out", "seen.npz").code == 0
    seen = np.load("seen.npz")
    assert np.array_equal(seen["offsets"], offsets)
    assert seen["output"].shape == (len(values), 5)
    for changes, sentence in (
        ({"x": values + 1}, "the pad value 5 is also a value"),
        ({"x": np.where(values == 0, 7, values)}, "the run's model cannot take new.npz: index out of range"),
        ({"x": values + 0.5}, "new.npz holds float64, and the run's model takes whole numbers"),
        ({"x.offsets": offsets[[0, 0, -1]]}, "sequence 0 has length 0"),
    ):
        np.savez("new.npz", **{"x": values, "x.offsets": offsets, "x.pad": np.array(9), **changes})
        refused = undrift("predict", "text", "new.npz", "--trust")
        assert (refused.code, sentence in refused.err, len(refused.err.splitlines())) == (2, True, 1), refused.err
    np.savez("new.npz", x=values.reshape(-1, 1))
    assert "sequences of unequal length; give x, x.offsets" in undrift("predict", "text", "new.npz", "--trust").err


def test_columns_are_predicted_from_an_npz_and_from_python(undrift):
    Path("mine.py").write_text(SEQUENCES)
    draw = np.random.default_rng(0)
    tokens, age = draw.integers(0, 6, (20, 3)), draw.normal(size=20)
    columns = {"x.tokens": tokens, "x.age": age}
    np.savez("people.npz", y=(age > 0).astype(np.int64), client=np.arange(20) % 2, task="classification", **columns)
    run = ("--data", "people.npz", "--partition", "natural", "--model", "mine:Two", "--rounds", "2", "--out", "people")
    assert undrift("run", *run, "--quiet").code == 0
    np.savez("new.npz", **columns)
    assert undrift("predict", "people", "new.npz", "--trust", "--out", "seen.npz").code == 0
    result = ud.load("people", trust=True)
    outputs = result.predict({"age": torch.tensor(age), "tokens": tokens})
    assert np.array_equal(np.load("seen.npz")["output"], outputs.numpy())
    assert np.load("seen.npz")["prediction"].tolist() == outputs.argmax(1).tolist()
    np.savez("new.npz", **{"x.tokens": tokens})
    assert "which the run's model takes, 'age'" in undrift("predict", "people", "new.npz", "--trust").err
    np.savez("new.npz", x=tokens)
    assert "takes the columns age, tokens" in undrift("predict", "people", "new.npz", "--trust").err
    np.savez("new.npz", **columns, **{"x.age.offsets": np.array([0, 20]), "x.age.pad": np.array(-9)})
    assert "has 1 samples" in undrift("predict", "people", "new.npz", "--trust").err


def test_a_clients_own_model_predicts(undrift, small, tmp_path):
    undrift("run", *small, "--method", "fedper", "--out", "personal", "--quiet")
    x = load("digits").x_test[:5]
    np.savez("new.npz", x=x)
    assert undrift("predict", "personal", "new.npz", "--client", "1", "--out", "one.npz").code == 0
    run = ud.load("personal")
    assert np.array_equal(np.load("one.npz")["output"], run.predict(x, client=1).numpy())
    refused = undrift("predict", "personal", "new.npz")
    assert refused.code != 0
    assert "private entries" in refused.err
    refused = undrift("export", "personal", "--model", "whole.safetensors")
    assert (
        refused.err
        == "undrift: a method with private entries has no global model; give --client for the model of one client\n"
    )
    assert undrift("export", "personal", "--model", "one.safetensors", "--client", "1").code == 0
    state = safetensors.torch.load_file("one.safetensors")
    assert all(torch.equal(value, run.personal(1).state_dict()[name]) for name, value in state.items())


def test_the_whole_model_is_the_base_and_the_adapter(undrift, small, tmp_path):
    Path("mine.py").write_text(NETWORK)
    assert undrift("run", *small, "--model", "mine:network", "--out", "frozen", "--quiet").code == 0
    assert undrift("export", "frozen", "--model", "whole.safetensors").code == 2
    whole = undrift("export", "frozen", "--model", "whole.safetensors", "--trust")
    part = undrift("export", "frozen", "--model", "part.safetensors", "--adapter", "--trust")
    assert whole.out == "whole.safetensors: 4 tensors, 610 numbers\n", whole.err
    assert part.out == "part.safetensors: 2 tensors, 90 numbers\n"
    assert not Path("frozen/export").exists()
    everything, trained = (safetensors.torch.load_file(f"{name}.safetensors") for name in ("whole", "part"))
    assert set(trained) == {"3.weight", "3.bias"}
    assert all(torch.equal(everything[name], value) for name, value in trained.items())
    kept = safetensors.torch.load_file("frozen/model.safetensors")
    assert set(kept) == set(trained)
    assert all(torch.equal(kept[name], value) for name, value in trained.items())
    with safetensors.safe_open("part.safetensors", "pt") as file:
        import tomllib

        assert file.metadata()["base"] == tomllib.loads(Path("frozen/run.toml").read_text())["about"]["base"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("predict", "nowhere", "digits"), "nowhere"),
        (("predict", "first", "nothing.npz"), "there is no file nothing.npz; give an .npz with the array x, a .csv"),
        (("predict", "first", "nothing"), "'nothing' is no .npz, no .csv and no data set; give one of these"),
        (("predict", "first", "narrow.npz"), "has samples of shape (1, 3, 3), and the run's model takes (1, 8, 8)"),
        (("predict", "first", "other.npz"), "other.npz has no array x; it holds z"),
        (("predict", "first", "holes.npz"), "holes.npz holds NaN or infinite values, first in sample 1"),
        (("predict", "first", "words.csv"), "line 2 of words.csv has 'red' in the column 'b'; give numbers"),
        (("predict", "first", "short.csv"), "line 3 of short.csv has 1 cells, the first line 2"),
        (("predict", "first", "digits", "--client", "99"), "there is no client 99"),
        (("predict", "first", "digits", "--out", "a.txt"), "predictions are written as .csv or .npz, not to 'a.txt'"),
        (("export", "first", "--model", "a.pt"), "a model is written as .safetensors, not to 'a.pt'"),
        (("export", "first", "--adapter"), "--adapter goes with --model FILE"),
        (("export", "first", "--model", "a.safetensors", "--adapter"), "all parameters of this model were trained"),
    ],
)
def test_what_is_refused(undrift, finished, arguments, sentence):
    np.savez("narrow.npz", x=np.zeros((2, 3, 3)))
    np.savez("other.npz", z=np.zeros(3))
    np.savez("holes.npz", x=np.stack([np.zeros((8, 8)), np.full((8, 8), np.nan)]))
    Path("words.csv").write_text("a,b\n1,red\n")
    Path("short.csv").write_text("a,b\n1,2\n1\n")
    result = undrift(*arguments)
    assert result.code != 0
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1
