"""A user's own data: .npz files and folders of images."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from undrift.core.errors import BadRequest
from undrift.data import load


def save(path, **changes):
    draw = np.random.default_rng(0)
    arrays = {
        "x_train": draw.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8),
        "y_train": np.arange(30) % 3,
        "x_test": draw.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8),
        "y_test": np.arange(9) % 3,
    } | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def test_a_damaged_file_is_refused_in_a_short_sentence(tmp_path):
    path = tmp_path / "mine.npz"
    save(path)
    raw = bytearray(path.read_bytes())
    local = raw.index(b"PK\x03\x04")
    raw[local + 27] = 2  # the length of the first file's name, in bytes × 256: what follows is read as its name
    path.write_bytes(raw)
    with pytest.raises(BadRequest, match=r"cannot read .*mine\.npz as \.npz: .*…; write it again") as found:
        load(str(path))
    assert len(str(found.value)) < 400


def test_npz_of_images_is_channels_first_and_measured(tmp_path):
    data = load(save(tmp_path / "mine.npz"))
    assert data.name == "mine"
    assert data.shape == (3, 8, 8)
    assert data.classes == ("0", "1", "2")
    standardised = data.standardised(data.x_train)
    assert standardised.mean((0, 2, 3)).abs().max() < 1e-4
    assert standardised.std((0, 2, 3), unbiased=False).sub(1).abs().max() < 1e-4


def test_npz_tables_are_standardised_by_column_and_constant_columns_stay_finite(tmp_path):
    table = np.random.default_rng(1).normal(5, 3, (30, 4))
    table[:, 2] = 7
    data = load(save(tmp_path / "table.npz", x_train=table, x_test=table[:9]))
    assert data.shape == (4,)
    assert data.x_train.dtype == np.float32
    standardised = data.standardised(data.x_train)
    assert standardised.mean(0).abs().max() < 1e-4
    assert standardised[:, 2].abs().max() < 1e-4


def test_npz_with_clients_and_domains_by_name(tmp_path):
    owners = np.array(["b", "a", "c"] * 10)
    data = load(save(tmp_path / "m.npz", client=owners, domain=np.arange(30) % 2 + 5, domain_test=np.full(9, 6)))
    assert data.clients == ("a", "b", "c")
    assert data.client_train.tolist()[:3] == [1, 0, 2]
    assert data.domains == ("5", "6")
    assert data.domain_test.tolist() == [1] * 9
    named = load(save(tmp_path / "n.npz", domain_train=np.arange(30) % 2, domains=np.array(["day", "night"])))
    assert named.domains == ("day", "night")


def test_npz_without_a_test_part_says_so(tmp_path):
    data = load(save(tmp_path / "m.npz", x_test=None, y_test=None))
    assert len(data.x_test) == 0
    assert data.note == "no test part"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"y_train": np.arange(30) + 0.5}, "y_train of .* must hold integers, not float64"),
        ({"y_train": np.array(["cat"] * 30)}, "must hold integers"),
        ({"y_train": np.arange(29)}, "has 30 samples but 29 labels"),
        ({"y_train": np.arange(30) - 1}, "has the label -1, outside"),
        ({"classes": np.array(["a", "b"])}, "has the label 2, outside its 2 classes"),
        (
            {"x_train": np.full((30, 5), np.nan), "x_test": np.zeros((9, 5))},
            "NaN or infinite values, first in sample 0",
        ),
        ({"x_train": np.full((30, 5), 1e300), "x_test": np.zeros((9, 5))}, "NaN or infinite"),
        ({"x_train": np.zeros((30, 5))}, r"shape \(5,\) but test samples \(3, 8, 8\)"),
        ({"x_train": np.array(["a"] * 30)}, "must hold samples as numbers"),
        ({"x_test": None}, "only one of x_test and y_test"),
        ({"y_train": None}, "lacks the array y_train; it holds"),
        ({"x_train": np.zeros((0, 5)), "y_train": np.zeros(0, int)}, "no training samples"),
        ({"client": np.arange(3)}, "30 samples but 3 client ids"),
        ({"domain": np.zeros(30, int), "domains": np.array(["a", "b"])}, "domain 'b' of m has no training samples"),
        ({"domain": np.zeros(30, int), "domain_test": np.ones(9, int)}, "test samples of the domain 1"),
    ],
)
def test_bad_arrays_are_one_sentence(tmp_path, changes, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        load(save(tmp_path / "m.npz", **changes))
    assert "\n" not in str(caught.value)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize("name", ["x_train", "y_train", "classes"])
def test_object_arrays_are_refused_and_never_unpickled(tmp_path, name):
    bomb = np.empty(30, dtype=object)
    bomb[:] = [Bomb() for _ in range(30)]
    with pytest.raises(BadRequest, match=rf"object array '{name}'.*never unpickled"):
        load(save(tmp_path / "m.npz", **{name: bomb}))


def test_files_that_are_no_npz_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no zip")
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    cut = tmp_path / "c.npz"
    save(cut)
    cut.write_bytes(cut.read_bytes()[:500])
    for name in "abc":
        with pytest.raises(BadRequest, match=r"\.npz"):
            load(str(tmp_path / f"{name}.npz"))
    with pytest.raises(BadRequest, match="there is no file"):
        load(str(tmp_path / "d.npz"))


def picture(path, colour, size=(6, 5), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def test_image_folder_with_splits(tmp_path):
    for split, count in (("train", 3), ("test", 2)):
        for label, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
            for i in range(count):
                picture(tmp_path / split / label / f"{i}.png", colour)
    data = load(str(tmp_path))
    assert data.shape == (3, 5, 6)
    assert data.classes == ("cat", "dog")
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(data.y_test) == 4
    assert data.x_train[3].reshape(3, -1).mean(1).tolist() == [0, 0, 255]


def test_image_folder_by_class_or_by_client(tmp_path):
    picture(tmp_path / "plain" / "a" / "1.png", 9, mode="L")
    picture(tmp_path / "plain" / "b" / "1.png", 200, mode="L")
    plain = load(str(tmp_path / "plain"))
    assert plain.shape == (1, 5, 6)
    assert plain.clients == ()
    for client in ("north", "south"):
        picture(tmp_path / "sites" / client / "a" / "1.png", (1, 2, 3))
        picture(tmp_path / "sites" / client / "b" / "1.png", 7, mode="L")
    by_client = load(str(tmp_path / "sites"))
    assert by_client.clients == ("north", "south")
    assert by_client.client_train.tolist() == [0, 0, 1, 1]
    assert by_client.shape == (3, 5, 6)  # one colour image makes all colour


def test_images_of_unequal_size_are_refused_or_resized(tmp_path):
    picture(tmp_path / "a" / "1.png", (1, 2, 3))
    picture(tmp_path / "a" / "2.png", (1, 2, 3), size=(9, 5))
    with pytest.raises(BadRequest, match=r"1\.png is 6×5 and .*2\.png is 9×5; .*size=32"):
        load(str(tmp_path))
    assert load(str(tmp_path), size=4).shape == (3, 4, 4)
    with pytest.raises(BadRequest, match="size must be"):
        load(str(tmp_path), size=0)


def test_folders_without_images_and_broken_images(tmp_path):
    with pytest.raises(BadRequest, match="holds no images"):
        load(str(tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"no picture")
    with pytest.raises(BadRequest, match=r"cannot read the image .*1\.png"):
        load(str(tmp_path))
    with pytest.raises(BadRequest, match="there is no folder"):
        load(str(tmp_path / "b" / "c"))
