"""A pandas table and a Hugging Face dataset as federations."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import undrift as ud
from undrift.core.errors import BadRequest

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
