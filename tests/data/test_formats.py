"""Readers of the public formats on small generated files, and their errors for broken files."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import scipy.io
from PIL import Image

from undrift.core.errors import BadRequest
from undrift.data import load


def write_idx(path, array, packed=False):
    raw = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if packed else raw)


def write_mnist(folder, prefix=("train", "t10k"), labels=(0, 9), packed=False, side=28, seed=0):
    draw = np.random.default_rng(seed)
    held = {}
    for split, count in zip(prefix, (40, 20), strict=True):
        held[split] = (
            draw.integers(0, 256, (count, side, side), dtype=np.uint8),
            draw.integers(labels[0], labels[1] + 1, count),
        )
        end = ".gz" if packed else ""
        write_idx(folder / f"{split}-images-idx3-ubyte{end}", held[split][0], packed)
        write_idx(folder / f"{split}-labels-idx1-ubyte{end}", held[split][1], packed)
    return held


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("below", ["", "MNIST/raw", "mnist"])
def test_idx_plain_or_gzipped_in_the_folder_or_below_it(tmp_path, packed, below):
    held = write_mnist(tmp_path / below, packed=packed)
    data = load("mnist", tmp_path)
    assert data.shape == (1, 28, 28)
    assert np.array_equal(data.x_train[:, 0], held["train"][0])
    assert np.array_equal(data.y_test, held["t10k"][1])
    assert data.x_train.dtype == np.uint8
    assert data.y_train.dtype == np.int64
    assert data.classes == tuple("0123456789")


def test_the_environment_variable_is_searched_but_only_in_named_folders(tmp_path, monkeypatch):
    """MNIST and Fashion-MNIST have the same file names: in a common folder they cannot be distinguished."""
    monkeypatch.setattr("undrift.data.download.fetch", no_network)
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    write_mnist(tmp_path)
    with pytest.raises(BadRequest, match=r"fashion-mnist was not found.*train-images-idx3-ubyte.*FashionMNIST/raw"):
        load("fashion-mnist")
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert load("fashion-mnist").classes[0] == "T-shirt/top"


def no_network(url):
    raise OSError("no network here")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda raw: raw[:-5], "is truncated or damaged: 31371 bytes where its header says 31376"),
        (lambda raw: raw[:3], "is not an idx file"),
        (lambda raw: b"<html>" + raw, "is not an idx file"),
        (lambda raw: gzip.compress(raw)[:200], "cannot read"),
        (lambda raw: gzip.compress(raw)[:-9] + b"\0" * 9, "cannot read"),
        (lambda raw: struct.pack(">HBB1I", 0, 8, 1, 40) + bytes(40), "are they swapped"),
        (lambda raw: struct.pack(">HBB3I", 0, 8, 3, 39, 28, 28) + bytes(39 * 784), "39 images but .* 40 labels"),
    ],
)
def test_broken_idx_files_are_one_sentence(tmp_path, damage, reason):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadRequest, match=reason) as caught:
        load("mnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_labels_outside_the_classes_are_refused(tmp_path):
    write_mnist(tmp_path, labels=(10, 10))
    with pytest.raises(BadRequest, match=r"mnist \(train\) has the label 10, outside its 10 classes 0…9"):
        load("mnist", tmp_path)


def test_emnist_is_turned_upright_and_letters_start_at_zero(tmp_path):
    held = write_mnist(tmp_path / "EMNIST/raw", ("emnist-letters-train", "emnist-letters-test"), (1, 26), packed=True)
    images, labels = held["emnist-letters-train"]
    data = load("emnist-letters", tmp_path)
    assert np.array_equal(data.x_train[:, 0], images.transpose(0, 2, 1))
    assert np.array_equal(data.y_train, labels - 1)
    assert len(data.classes) == 26
    ten = load("emnist-letters10", tmp_path)
    assert ten.classes == tuple("abcdefghij")
    assert np.array_equal(ten.x_train[:, 0], images[labels <= 10].transpose(0, 2, 1))
    assert np.array_equal(ten.y_train, labels[labels <= 10] - 1)


def test_emnist_balanced_keeps_its_labels(tmp_path):
    held = write_mnist(tmp_path, ("emnist-balanced-train", "emnist-balanced-test"), (0, 46))
    data = load("emnist-balanced", tmp_path)
    assert len(data.classes) == 47
    assert np.array_equal(data.y_train, held["emnist-balanced-train"][1])


def test_cifar_binary_ten_and_hundred(tmp_path):
    draw = np.random.default_rng(0)
    ten = draw.integers(0, 256, (12, 3073), dtype=np.uint8)
    ten[:, 0] %= 10
    for i in range(5):
        path = tmp_path / "cifar-10-batches-bin" / f"data_batch_{i + 1}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(ten[2 * i : 2 * i + 2].tobytes())
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(ten[10:].tobytes())
    data = load("cifar-10", tmp_path)
    assert np.array_equal(data.x_train, ten[:10, 1:].reshape(10, 3, 32, 32))
    assert np.array_equal(data.y_test, ten[10:, 0])

    hundred = draw.integers(0, 256, (9, 3074), dtype=np.uint8)
    hundred[:, 1] %= 100
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(hundred[:6].tobytes())
    (folder / "test.bin").write_bytes(hundred[6:].tobytes())
    (folder / "fine_label_names.txt").write_text("".join(f"thing{c}\n" for c in range(100)) + "\n")
    data = load("cifar-100", tmp_path)
    assert np.array_equal(data.y_train, hundred[:6, 1])  # the second byte: the fine label
    assert np.array_equal(data.x_test, hundred[6:, 2:].reshape(3, 3, 32, 32))
    assert data.classes[99] == "thing99"

    (folder / "test.bin").write_bytes(hundred[6:].tobytes()[:-1])
    with pytest.raises(BadRequest, match="truncated: 9221 bytes are no whole number of records of 3074"):
        load("cifar-100", tmp_path)


def test_svhn_mat_where_ten_means_zero(tmp_path):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (32, 32, 3, 11), dtype=np.uint8)
    labels = np.arange(1, 12)[:, None] % 11
    labels[labels == 0] = 10
    for split in ("train", "test"):
        scipy.io.savemat(tmp_path / f"{split}_32x32.mat", {"X": images, "y": labels.astype(np.uint8)})
    data = load("svhn", tmp_path)
    assert np.array_equal(data.x_train[4, 1], images[:, :, 1, 4])
    assert data.y_train.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0]
    (tmp_path / "test_32x32.mat").write_bytes(b"nothing of the kind")
    with pytest.raises(BadRequest, match=r"cannot read .*test_32x32.mat as a .mat file"):
        load("svhn", tmp_path)
    scipy.io.savemat(tmp_path / "test_32x32.mat", {"X": images})
    with pytest.raises(BadRequest, match="not SVHN's cropped format"):
        load("svhn", tmp_path)


def test_domainnet_from_its_lists_keeps_ten_classes_and_six_domains(tmp_path):
    root = tmp_path / "domainnet"
    domains = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
    for number, domain in enumerate(domains):
        for split in ("train", "test"):
            lines = []
            for name, label in (("airplane", 1), ("basketball", 19), ("ant", 6), ("strawberry", 290)):
                path = f"{domain}/{name}/{domain}_{split}_000001.jpg"
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (40 + label % 7, 30), (number * 40, 9, 9)).save(root / path)
                lines.append(f"{path} {label}\n")
            (root / f"{domain}_{split}.txt").write_text("".join(lines))
    data = load("domainnet", tmp_path, size=16)
    assert data.shape == (3, 16, 16)
    assert data.domains == domains
    assert data.classes[3] == "basketball"
    assert data.y_train.tolist() == [0, 3, 6] * 6
    assert data.domain_test.tolist() == np.repeat(np.arange(6), 3).tolist()
    assert data.x_train[3 * 5, 0].mean() == pytest.approx(200, abs=3)
    (root / "real_test.txt").write_text("real/airplane/x.jpg one\n")
    with pytest.raises(BadRequest, match="which is not 'domain/class/file number'"):
        load("domainnet", tmp_path, size=16)


@pytest.mark.parametrize("name", ["emnist-letters", "cifar-100", "svhn", "pacs32", "domainnet"])
def test_data_without_a_download_say_which_files_to_put_where(name, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    with pytest.raises(BadRequest, match=rf"{name} was not found: get it from .* and put .* under {tmp_path}"):
        load(name)


def test_missing_folders_are_named(tmp_path, monkeypatch):
    with pytest.raises(BadRequest, match=r"the folder .*nowhere for mnist does not exist"):
        load("mnist", tmp_path / "nowhere")
    with pytest.raises(BadRequest, match="does not hold mnist: expected train-images-idx3-ubyte"):
        load("mnist", tmp_path)
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path / "gone"))
    with pytest.raises(BadRequest, match=r"UNDRIFT_DATA names the folder .*gone, which does not exist"):
        load("mnist")
