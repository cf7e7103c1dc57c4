"""Data that are not classes of images: roles of plays, tables, drawings, .csv files."""

from __future__ import annotations

import json
import lzma

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.data import load
from undrift.data.csv_file import csv_columns

PLAYS = {
    "Play": {"KING": ["abcdefg", "hij"], "FOOL": ["ab", "cd"], "PAGE": ["only one speech"]},
    "Other": {"QUEEN": ["abcabcabcabc", "ab"]},
}


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """A folder with the roles of two plays."""
    (tmp_path / "shakespeare_roles.json.xz").write_bytes(lzma.compress(json.dumps(PLAYS).encode()))
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    return tmp_path


def texts(data, split):
    """The text that the pieces of every role spell: their characters, and the last one that is predicted."""
    x, y = getattr(data, f"x_{split}"), getattr(data, f"y_{split}")
    owner = getattr(data, f"client_{split}")
    pieces = [
        "".join(data.classes[int(token)] for token in (*x[np.array([row])].values, y[np.array([row])].values[-1]))
        for row in range(len(x))
    ]
    return {name: [piece for piece, k in zip(pieces, owner) if k == i] for i, name in enumerate(data.clients)}


def test_roles_are_clients_and_every_character_is_predicted_from_those_before_it(plays):
    data = load("shakespeare(length=4)")
    assert data.clients == ("Play: KING", "Play: FOOL", "Other: QUEEN")  # PAGE has one speech
    assert data.classes == tuple(sorted(set("abcdefghij\n")))
    train, test = texts(data, "train"), texts(data, "test")
    # "abcdefg\nhij" has ten pairs: pieces of 4, 4 and 2 predictions, of which the last (a fifth, rounded) is the test part
    assert train["Play: KING"] == ["abcde", "efg\nh"]
    assert test["Play: KING"] == ["hij"]
    assert train["Play: FOOL"] == ["ab\ncd"]
    assert test["Play: FOOL"] == []
    federation = ud.federate("shakespeare(length=4)")
    assert federation.spec["partition"] == "natural"
    assert federation.task.name == "sequence"
    assert federation.names == data.clients
    assert federation.shape == (4,)
    x, y = federation.train(0)
    assert torch.equal(x.padded()[:, 1:], y.padded()[:, :-1])  # y is x, one further


def test_the_longest_roles_and_their_first_pieces(plays):
    assert load("shakespeare(roles=1)").clients == ("Other: QUEEN",)
    few = load("shakespeare(pieces=1, length=3)")
    assert [len(rows) for rows in texts(few, "train").values()] == [1, 1, 1]
    with pytest.raises(BadRequest, match="shakespeare has 3 roles, not 4; ask for at most 3"):
        load("shakespeare(roles=4)")
    with pytest.raises(BadRequest, match="length of shakespeare must be a whole number of at least 2, not 1"):
        load("shakespeare(length=1)")
    (plays / "shakespeare_roles.json.xz").write_bytes(b"[1, 2]")
    with pytest.raises(BadRequest, match="is not a JSON of"):
        load("shakespeare")


def test_an_lstm_learns_a_text_by_heart(tmp_path, monkeypatch):
    speeches = ["abcd" * 10, "abcd" * 5]
    (tmp_path / "shakespeare_roles.json").write_text(json.dumps({"Play": {"A": speeches, "B": speeches}}))
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    result = ud.run(
        "fedavg", data="shakespeare(length=8)", model="lstm(width=16, layers=1)", rounds=25, cohort=1.0, optimizer="adam",
        lr=0.05, batch=4, out=False,
    )  # fmt: skip
    assert result.summary["headline"]["name"] == "token_accuracy"
    assert result.headline > 0.9  # a table of characters would do it


@pytest.mark.data
def test_shakespeare_has_the_published_number_of_roles():
    data = load("shakespeare")
    assert len(data.clients) == 1117
    assert len(data.classes) == 76
    assert data.x_train.longest == 80
    assert len(load("shakespeare(roles=100, pieces=20)").client_train) == 1600


@pytest.mark.parametrize(
    ("name", "columns", "train", "test"),
    [("diabetes", 10, 354, 88), ("breast-cancer", 30, 455, 114), ("wine", 13, 142, 36)],
)
def test_tables_of_scikit_learn_are_whole_and_always_split_the_same(name, columns, train, test):
    from sklearn import datasets

    data, again = load(name), load(name)
    theirs = getattr(datasets, f"load_{name.replace('-', '_')}")(**({"scaled": False} if name == "diabetes" else {}))
    assert (data.shape, len(data.y_train), len(data.y_test)) == ((columns,), train, test)
    assert np.array_equal(data.x_test, again.x_test)
    rows = np.concatenate([data.x_train, data.x_test]).astype(np.float32)
    assert sorted(map(bytes, rows)) == sorted(map(bytes, theirs.data.astype(np.float32)))
    standardised = data.standardised(data.x_train)
    assert standardised.mean(0).abs().max() < 1e-3
    if name == "diabetes":
        task = data.as_task
        assert (task.name, task.outputs) == ("regression", 1)
        assert task.center == pytest.approx(data.y_train.mean(), rel=1e-4)
        assert task.scale == pytest.approx(data.y_train.std(), rel=1e-4)
    else:
        whole = np.bincount(theirs.target)
        assert np.abs(np.bincount(data.y_test) - whole * test / len(rows)).max() < 1
        assert data.classes == tuple(theirs.target_names)


def test_shapes_are_drawn_from_the_seed_and_more_clients_change_nothing():
    data, more, other = load("shapes(clients=3)"), load("shapes(clients=5)"), load("shapes(clients=3, seed=1)")
    assert (data.x_train.shape, data.y_train.shape) == ((120, 3, 24, 24), (120, 24, 24))
    assert (len(data.y_test), data.clients[2], data.as_task.name) == (30, "artist 2", "segmentation")
    assert np.array_equal(more.x_train[:120], data.x_train)
    assert not np.array_equal(other.x_train, data.x_train)
    assert set(np.unique(data.y_train)) == {0, 1, 2, 3}
    # a shape stands out from its paper: without the grain every pixel could be told by its brightness
    bright = data.x_train.mean(1) / 255
    assert bright[data.y_train > 0].mean() > bright[data.y_train == 0].mean() + 0.3


def test_labels_of_shapes_are_those_of_their_masks():
    masks, labels = load("shapes(clients=2)"), load("shapes(clients=2, targets=labels)")
    assert np.array_equal(masks.x_train, labels.x_train)
    assert labels.as_task.name == "multilabel"
    assert labels.classes == ("circle", "square", "triangle")
    for kind in range(3):
        shown = (masks.y_train == kind + 1).any((1, 2))
        assert np.array_equal(labels.y_train[:, kind], shown)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("digits(side=3)", r"the data set digits takes no options, not 'digits\(side=3\)'"),
        ("shapes(clints=3)", "unknown parameter of shapes 'clints'; did you mean clients"),
        ("shapes(clients=0)", "clients of shapes must be a whole number of at least 1, not 0"),
        ("shapes(targets=both)", "targets of shapes must be masks or labels, not 'both'"),
    ],
)
def test_bad_options_of_data_are_one_sentence(data, reason):
    with pytest.raises(BadRequest, match=reason):
        load(data)


HOUSES = "town,rooms,area,price,garden,lift\nulm,3,70.5,210000,1,0\nulm,4,90,260000.5,1,1\nbonn,2,50,150000,0,1\nbonn,5,120,390000,1,0\n"


@pytest.fixture
def houses(tmp_path):
    path = tmp_path / "houses.csv"
    path.write_text(HOUSES + 4 * HOUSES.split("\n", 1)[1], encoding="utf-8-sig")
    return path


def test_a_csv_is_a_federation_of_its_clients(houses):
    federation = ud.federate(houses, task="regression", target="price", client_column="town")
    assert federation.names == ("bonn", "ulm")
    assert federation.spec["partition"] == "natural"
    assert federation.shape == (4,)  # rooms, area, garden, lift
    assert federation.task.center == pytest.approx(
        252_500.125, rel=1e-5
    )  # of (210,000 + 260,000.5 + 150,000 + 390,000)/4
    again = ud.federate(**{("seed" if k == "data_seed" else k): v for k, v in federation.spec.items()})
    assert again.fingerprint == federation.fingerprint


def test_a_csv_may_have_several_targets_and_classes(houses):
    both = ud.federate(houses, task="multilabel", target="garden,lift", client_column="town")
    assert (both.labels, tuple(both.y.shape), both.shape) == (("garden", "lift"), (16, 2), (3,))
    prices = ud.federate(houses, "iid", 2, task="regression(loss=huber)", target="price, area", client_column="town")
    assert (prices.task.outputs, prices.task.kind, tuple(prices.y.shape)) == (2, "huber", (16, 2))
    towns = ud.federate(houses, "iid", 2, target="town")
    assert towns.labels == ("bonn", "ulm")
    assert towns.task.name == "classification"
    columns = csv_columns(houses)
    assert columns["rooms"].dtype == np.int64
    assert columns["area"].dtype == np.float64
    assert columns["town"].tolist()[:4] == ["ulm", "ulm", "bonn", "bonn"]


def test_a_run_on_a_csv_repeats_from_its_file(houses, tmp_path):
    options = {
        "data": str(houses),
        "target": "price",
        "client_column": "town",
        "task": "regression",
        "rounds": 2,
        "clip": 1.0,
    }
    first = ud.run("fedavg", out=tmp_path / "run", **options)
    text = (tmp_path / "run" / "run.toml").read_text()
    assert 'target = "price"' in text
    assert 'client_column = "town"' in text
    assert 'partition = "natural"' in text
    assert ud.load(tmp_path / "run").summary["model_sha256"] == first.summary["model_sha256"]
    assert first.summary["headline"]["name"] == "rmse"
    assert first.summary["headline"]["value"] < 1e6  # in the units of the price, not of its square or its deviation


@pytest.mark.parametrize(
    ("text", "asked", "reason"),
    [
        (HOUSES, {"target": "prize"}, r"unknown column of .*houses.csv 'prize'; did you mean price"),
        (HOUSES, {"target": "price", "client_column": "twn"}, "unknown column of .*'twn'; did you mean town"),
        (HOUSES, {}, "say which column of .* is predicted: --target, one of town, rooms, area"),
        (
            HOUSES,
            {"target": "garden,lift"},
            "has 2 columns to predict, garden, lift; say what they mean: task regression or",
        ),
        (HOUSES, {"target": "price", "task": "regression"}, "the column town of .* does not hold numbers; encode it"),
        (
            HOUSES,
            {"target": "town", "task": "regression"},
            "the column town of .* does not hold numbers; predict it as classes",
        ),
        (
            HOUSES,
            {"target": "price", "client_column": "town"},
            "must hold integers, not float.*for other targets give a task",
        ),
        (
            HOUSES.replace("150000", ""),
            {"target": "price", "client_column": "town", "task": "regression"},
            r"houses.csv \(train\) has targets that are NaN or infinite, first in sample 2; remove or fill them",
        ),
        (
            HOUSES.replace(",50,", ",,"),
            {"target": "price", "client_column": "town", "task": "regression"},
            "holds NaN or infinite values, first in sample 2",
        ),
        ("a,a\n1,2\n", {"target": "a"}, "names the column 'a' twice or not at all"),
        ("a,b\n1\n", {"target": "a"}, "line 2 of .* has 1 cells, the first line 2"),
        ("a,b\n", {"target": "a"}, "has no rows below its first line"),
        ("", {"target": "a"}, "is empty; its first line names the columns"),
    ],
)
def test_a_bad_csv_is_refused_in_one_sentence(tmp_path, text, asked, reason):
    path = tmp_path / "houses.csv"
    path.write_text(text)
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.federate(path, **asked)
    assert "\n" not in str(caught.value)


def test_columns_are_named_for_a_csv_only():
    with pytest.raises(BadRequest, match=r"--target names a column of a \.csv file, and the data are 'digits'"):
        ud.federate("digits", target="a")
    with pytest.raises(BadRequest, match=r"there is no file none\.csv"):
        load("none.csv", target="a")


def test_a_mask_of_another_size_and_other_bad_targets_are_refused_with_their_values():
    x = np.zeros((4, 3, 8, 8), dtype=np.float32)
    for task, y, reason in (
        (
            "segmentation",
            np.zeros((4, 8, 7), dtype=np.int64),
            "pictures of 8×8 pixels and masks of 8×7; bring them to one size",
        ),
        ("regression", np.array([1.0, np.nan, 2.0, 3.0], dtype=np.float32), "NaN or infinite, first in sample 1"),
        ("multilabel", np.full((4, 2), 2), "targets that are not 0 or 1"),
    ):
        with pytest.raises(BadRequest, match=reason):
            ud.Federation.from_clients([(x, y)], task=task)
    with pytest.raises(BadRequest, match="sequence 1 has length 0; leave it out"):
        ud.Ragged([[1, 2], [], [3]], pad=-1)
    with pytest.raises(BadRequest, match="the pad value 2 is also a value of a sequence; choose one that none holds"):
        ud.Ragged([[1, 2], [3]], pad=2)
    with pytest.raises(BadRequest, match="diabetes has labels of type float32"):
        ud.federate("diabetes", task="classification")
