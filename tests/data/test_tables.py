"""A pandas table and a Hugging Face dataset as federations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged

pytestmark = pytest.mark.extras


def patients(**changes):
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    columns = {
        "age": draw.integers(20, 90, 60), "pressure": draw.normal(120, 20, 60), "smokes": draw.random(60) < 0.3,
        "hospital": np.repeat(["north", "south", "east"], [30, 20, 10]), "ill": np.where(draw.random(60) < 0.5, "yes", "no"),
    }  # fmt: skip
    return pandas.DataFrame(columns | changes)


def test_a_table_is_a_federation_of_its_clients():
    data = ud.data.table(patients(), label="ill", client="hospital", name="patients")
    assert data.classes == ("no", "yes")
    assert data.clients == ("east", "north", "south")
    assert data.shape == (3,)
    federation = ud.federate(data, "natural")
    assert federation.sizes.tolist() == [8, 24, 16]
    assert federation.x.mean(0).abs().max() < 0.5  # standardised by column
    result = ud.run("fedprox", federation, model="mlp(8)", rounds=2, out=False)
    assert result.summary["rounds"] == 2


def test_a_table_may_mark_its_test_samples_and_choose_its_features():
    frame = patients(held=np.arange(60) % 4 == 0)
    data = ud.data.table(frame, "ill", "hospital", test="held", features=["age", "pressure"])
    assert data.shape == (2,)
    assert (len(data.y_train), len(data.y_test)) == (45, 15)
    federation = ud.federate(data, "natural", 3)
    assert "test_share" not in federation.record
    assert [len(federation.slice(client)[0]) for client in range(3)] == [2, 8, 5]


def test_a_table_can_be_dealt_like_any_data():
    assert ud.federate(ud.data.table(patients().drop(columns="hospital"), "ill"), "dirichlet(1.0)", 3).clients == 3


@pytest.mark.parametrize(
    ("changes", "asked", "reason"),
    [
        ({}, {"label": "il"}, "unknown column of table 'il'; did you mean ill"),
        ({"ill": np.linspace(0, 1, 60)}, {}, "ill of table must hold integers, not float64"),
        ({"ill": [None, *["a"] * 59]}, {}, "the column ill of table has missing values"),
        ({"hospital": [None, *["a"] * 59]}, {}, "the column client of table has missing values"),
        ({"sex": ["f", "m"] * 30}, {}, "the column sex of table does not hold numbers; encode it"),
        ({"age": [np.nan] * 60}, {}, "NaN or infinite values, first in sample 0"),
        ({}, {"features": []}, "it needs features to learn from"),
    ],
    ids=str,
)
def test_refused_tables_give_one_sentence(changes, asked, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.data.table(patients(**changes), **{"label": "ill", "client": "hospital"} | asked)
    assert "\n" not in str(caught.value)


@pytest.fixture
def letters(tmp_path):
    """A small dataset with images and writers, written to disk and read back."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({
        "image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"]), "writer": datasets.Value("string"),
    })  # fmt: skip
    pictures = [Image.new("L", (8, 8), 10 * i) for i in range(20)]
    rows = {"image": pictures, "label": [i % 2 for i in range(20)], "writer": ["ann", "bob"] * 10}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "letters")
    return datasets.load_from_disk(tmp_path / "letters")


def test_a_hugging_face_dataset_is_a_federation(letters):
    data = ud.data.hugging_face(letters, client="writer")
    assert data.shape == (1, 8, 8)
    assert data.x_train.dtype == np.uint8
    assert data.classes == ("a", "b")
    assert data.clients == ("ann", "bob")
    assert data.x_train[3].max() == 30
    federation = ud.federate(data, "natural", domains="identity+inverted")
    assert federation.sizes.tolist() == [8, 8]
    assert ud.run("fedavg", federation, rounds=1, out=False).summary["rounds"] == 1


def test_hugging_face_splits_and_columns_of_numbers():
    datasets = pytest.importorskip("datasets")
    rows = {
        "x": np.arange(12.0),
        "z": np.ones(12),
        "label": [f"k{i % 3}" for i in range(12)],
        "site": [i % 4 for i in range(12)],
    }
    whole = datasets.Dataset.from_dict(rows)
    split = datasets.DatasetDict({"train": whole.select(range(8)), "test": whole.select(range(8, 12))})
    data = ud.data.hugging_face(split, client="site")
    assert data.shape == (2,)
    assert data.classes == ("k0", "k1", "k2")
    assert (len(data.y_train), len(data.y_test)) == (8, 4)
    assert data.client_test.tolist() == [0, 1, 2, 3]
    with pytest.raises(BadRequest, match="has the splits test"):
        ud.data.hugging_face(datasets.DatasetDict({"test": whole}))
    with pytest.raises(BadRequest, match="unknown column of hugging-face 'writer'"):
        ud.data.hugging_face(whole, client="writer")


def test_hugging_face_images_of_unequal_size_are_refused():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": [Image.new("RGB", size) for size in ((8, 8), (8, 9))], "label": [0, 1]}
    with pytest.raises(BadRequest, match="sample 0 is 8×8×3 and sample 1 9×8×3; resize them"):
        ud.data.hugging_face(datasets.Dataset.from_dict(rows, features=features))


SENTENCES = [[3, 1, 4], [1, 5], [9, 2, 6, 5], [3, 5, 8], [9, 7], [9, 3, 2]] * 3


@pytest.fixture
def texts():
    """Token ids of unequal length, an age, a class, numbers and tags, in two splits with authors."""
    datasets = pytest.importorskip("datasets")
    tags = datasets.ClassLabel(names=["noun", "verb"])
    features = datasets.Features({
        "ids": kind_of_lists(datasets, datasets.Value("int64")), "age": datasets.Value("float32"),
        "tags": kind_of_lists(datasets, tags), "price": datasets.Value("float64"), "author": datasets.Value("string"),
        "sort": datasets.ClassLabel(names=["tale", "poem"]), "two": kind_of_lists(datasets, datasets.Value("float32")),
    })  # fmt: skip
    rows = {
        "ids": SENTENCES, "age": [float(n) for n in range(18)], "tags": [[n % 2 for n in one] for one in SENTENCES],
        "price": [100.0 + n for n in range(18)], "author": ["ann", "bob", "cleo"] * 6, "sort": [0, 1] * 9,
        "two": [[n, 2 * n] for n in range(18)],
    }  # fmt: skip
    whole = datasets.Dataset.from_dict(rows, features=features)
    return datasets.DatasetDict({"train": whole.select(range(12)), "test": whole.select(range(12, 18))})


def kind_of_lists(datasets, inner):
    return datasets.List(inner) if hasattr(datasets, "List") else datasets.Sequence(inner)


def test_token_ids_of_unequal_length_are_sequences(texts):
    data = ud.data.hugging_face(texts, "tags", "author", features=["ids"], task="sequence")
    assert isinstance(data.x_train, Ragged)
    assert data.x_train.pad == -1
    assert (data.classes, data.clients, data.y_train.pad) == (("noun", "verb"), ("ann", "bob", "cleo"), -1)
    assert data.x_test[np.array([0])].values.tolist() == SENTENCES[12]
    federation = ud.federate(data, "natural")
    assert federation.x.dtype == torch.int64

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 2)

        def forward(self, ids):
            return self.out(self.words(ids.clamp(min=0)))

    inline, shared = (
        ud.run("scaffold", federation, model=Network, rounds=2, engine=engine, workers=2, out=False)
        for engine in ("inline", "processes")
    )
    assert inline.summary["model_sha256"] == shared.summary["model_sha256"]
    assert inline.summary["headline"]["name"] == "token_accuracy"


def test_several_columns_are_given_by_name(texts):
    data = ud.data.hugging_face(texts, "sort", "author", features=["ids", "age"], pad=0)
    assert isinstance(data.x_train, Columns)
    assert data.x_train["ids"].pad == 0
    assert data.x_train["age"].tolist() == [float(n) for n in range(12)]
    assert (data.as_task.name, data.classes, data.y_train.tolist()) == ("classification", ("tale", "poem"), [0, 1] * 6)
    federation = ud.federate(data, "dirichlet(0.5, least=1)", clients=2)
    assert federation.x["ids"].dtype == torch.int64


def test_numbers_of_a_hugging_face_dataset_are_a_regression_in_their_units(texts):
    data = ud.data.hugging_face(texts, "price", features=["age"], task="regression(loss=mae)")
    assert (data.as_task.kind, data.as_task.center) == ("mae", 108.5)
    assert len(data.mean) == 1  # a table, standardised
    both = ud.data.hugging_face(texts, ["price", "age"], features=["two"], task="regression")
    assert (both.shape, both.classes, both.y_train.shape) == ((2,), ("price", "age"), (12, 2))
    lists = ud.data.hugging_face(texts, "two", features=["age"], task="regression")
    assert (lists.as_task.outputs, lists.y_test.shape) == (2, (6, 2))


def test_an_image_may_be_the_target():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"picture": datasets.Image(), "mask": datasets.Image()})
    rows = {
        "picture": [Image.new("RGB", (4, 6), (9 * n, 0, 0)) for n in range(10)],
        "mask": [Image.new("L", (4, 6), n % 3) for n in range(10)],
    }
    data = ud.data.hugging_face(datasets.Dataset.from_dict(rows, features=features), "mask", task="segmentation")
    assert (data.x_train.shape, data.y_train.shape, len(data.classes)) == ((10, 3, 6, 4), (10, 6, 4), 3)
    assert data.y_train[:, 0, 0].tolist() == [n % 3 for n in range(10)]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"label": "sort", "features": ["ids", "author"]}, "the column author of hugging-face does not hold numbers"),
        ({"label": "sort", "features": ["ids"], "pad": 5}, "the pad value 5 is also a value"),
        ({"label": ["price", "author"], "features": ["age"], "task": "regression"}, "author of hugging-face does not"),
        ({"label": "tags", "features": ["age"], "task": "regression"}, "not numbers, one or several per sample"),
    ],
)
def test_columns_that_do_not_fit_are_refused_in_one_sentence(texts, asked, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.data.hugging_face(texts, **asked)
    assert "\n" not in str(caught.value)
