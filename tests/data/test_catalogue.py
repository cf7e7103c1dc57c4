"""Names, the embedded digits, the cache, downloads, and the real data if they are on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.data import about, available, load, names
from undrift.data.cache import cached
from undrift.data.dataset import measured
from undrift.data.download import Download
from undrift.data.entries import ENTRIES
from undrift.data.readers import content


def test_digits_are_1437_and_360_stratified_and_always_the_same():
    first, again = load("digits"), load("digits")
    assert (len(first.y_train), len(first.y_test), first.shape) == (1437, 360, (1, 8, 8))
    assert np.array_equal(first.x_train, again.x_train)
    whole = np.bincount(first.y_train) + np.bincount(first.y_test)
    assert np.abs(np.bincount(first.y_test) - whole * 360 / 1797).max() < 1
    digest = hashlib.sha256(first.y_train.astype("<i8").tobytes() + first.x_test.tobytes()).hexdigest()
    assert digest[:16] == "b37a7eba8810d424"


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    ours, theirs = load("digits"), load_digits()
    pooled = np.concatenate([ours.x_train, ours.x_test]).reshape(1797, 64) // 15
    assert sorted(map(bytes, pooled)) == sorted(map(bytes, theirs.data.astype(np.uint8)))
    assert ours.x_train.max() == 240


def test_standardised_has_mean_zero_and_deviation_one_and_is_a_copy():
    data = load("digits")
    ours = data.standardised(data.x_train)
    assert ours.dtype == torch.float32
    assert ours.mean().abs() < 1e-3
    assert (ours.std(unbiased=False) - 1).abs() < 1e-3
    scaled = data.scaled(data.x_train)
    assert 0 <= scaled.min() < scaled.max() <= 1
    assert torch.equal(data.standardised(scaled), ours)
    assert scaled.max() > 0.9  # not standardised in place


def test_unknown_names_get_the_nearest():
    with pytest.raises(BadRequest, match="the name of the data is empty; give one of"):
        load("")
    with pytest.raises(BadRequest, match="unknown data set 'fashon-mnist'; did you mean fashion-mnist"):
        load("fashon-mnist")
    with pytest.raises(BadRequest, match="did you mean"):
        about("cifar10")


def test_every_name_says_what_it_is_and_reductions_are_visible():
    assert names()[0] == "digits"
    assert len(set(names())) == len(names())
    for name in names():
        entry = about(name)
        assert entry.licence
        assert entry.source
        assert len(entry.mean) in (0, entry.shape[0])
    assert all("subset" in name for name in names() if "images of each class" in about(name).note)
    assert available("digits")
    assert not available("mnist")


def test_importing_is_cheap():
    """Start-up time is a published figure, so no heavy module may be imported."""
    heavy = ["torch", "sklearn", "scipy", "PIL", "rich", "tarfile", "urllib.request"]
    script = f"import sys, undrift.data; undrift.data.load('digits'); print([m for m in {heavy} if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cache_maps_what_was_decoded_once(tmp_path):
    source = tmp_path / "source"
    source.write_text("1")
    calls = []

    def make():
        calls.append(1)
        return {"x_train": np.arange(6).reshape(2, 3), "y_train": np.arange(2)}

    first, second = cached("thing", [source], make), cached("thing", [source], make)
    assert len(calls) == 1
    assert isinstance(second["x_train"], np.memmap)
    assert not second["x_train"].flags.writeable
    assert not isinstance(second["y_train"], np.memmap)
    assert np.array_equal(first["x_train"], second["x_train"])
    cached("thing", [source], make, options="other")
    source.write_text("22")
    cached("thing", [source], make)
    assert len(calls) == 3


def test_a_cache_that_cannot_be_written_costs_speed_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "file"))
    made = {"x_train": np.zeros(3)}
    assert cached("thing", [tmp_path / "file"], lambda: made) is made


def test_a_half_written_cache_is_never_read(tmp_path, monkeypatch):
    from undrift.data import cache

    source = tmp_path / "source"
    source.write_text("1")

    def full_disk(*args, **kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache.np, "save", full_disk)
        cached("thing", [source], lambda: {"x_train": np.zeros(3)})
    decoded = cache.cache_folder() / "decoded"
    assert list(decoded.iterdir()) == []
    assert isinstance(cached("thing", [source], lambda: {"x_train": np.zeros(3)})["x_train"], np.memmap)


def sha(raw):
    return hashlib.sha256(raw).hexdigest()


def test_downloads_are_checked_before_they_are_stored(tmp_path, capsys):
    host = tmp_path / "host"
    host.mkdir()
    (host / "good.gz").write_bytes(gzip.compress(b"good"))
    (host / "bad.gz").write_bytes(gzip.compress(b"changed on the way"))
    url = host.as_uri() + "/"
    Download(url, "set", (("good", sha(b"good")),)).into(tmp_path / "root")
    assert (tmp_path / "root" / "set" / "good").read_bytes() == b"good"
    with pytest.raises(BadRequest, match=r"bad from .* has the wrong SHA-256"):
        Download(url, "set", (("bad", sha(b"bad")),)).into(tmp_path / "root")
    assert [path.name for path in (tmp_path / "root" / "set").iterdir()] == ["good"]
    assert "downloading good.gz" in capsys.readouterr().err


def test_archives_are_unpacked_by_name_only(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for name in ("folder/one.bin", "../../evil.bin"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    fetched = Download(tmp_path.as_uri() + "/", "set", (("one.bin", sha(b"abc")),), "a.tar.gz")
    fetched.into(tmp_path / "root")
    assert [path.name for path in (tmp_path / "root").rglob("*.bin")] == ["one.bin"]
    (tmp_path / "a.tar.gz").write_bytes(b"<html>moved</html>")
    with pytest.raises(OSError, match=r"a\.tar\.gz"):
        replace(fetched, folder="other").into(tmp_path / "root")


def test_a_dead_host_is_one_sentence_that_says_what_to_do(monkeypatch):
    def fetch(url):
        raise OSError("no route to host")

    monkeypatch.setattr("undrift.data.download.fetch", fetch)
    with pytest.raises(
        BadRequest, match=r"could not be downloaded \(no route to host\): get it from .* and put"
    ) as caught:
        load("mnist")
    assert "\n" not in str(caught.value)


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.download])
def test_the_checksums_are_those_of_the_verified_copies(name):
    from undrift.data.find import locate

    entry = ENTRIES[name]
    paths = locate(name, entry.files)
    sums = dict(entry.download.sums)
    assert len(sums) == len(entry.files.names)
    for file, path in zip(entry.files.names, paths, strict=True):
        assert sha(content(path)) == sums[file]


REAL = {
    "mnist": (60_000, 10_000, 10),
    "fashion-mnist": (60_000, 10_000, 10),
    "cifar-10": (50_000, 10_000, 10),
    "cifar-100-subset": (8000, 2000, 100),
    "svhn-subset": (7000, 2000, 10),
    "mnist-m-subset": (4000, 1000, 10),
    "usps": (7291, 2007, 10),
    "pacs32": (7993, 1998, 7),
    "office-caltech10-32": (2027, 506, 10),
    "digits-domains": (25_291, 7007, 10),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_the_real_data_have_their_published_counts_and_their_normalisation(name):
    data = load(name)
    assert (len(data.y_train), len(data.y_test), len(data.classes)) == REAL[name]
    assert data.shape == about(name).shape
    assert len(np.unique(data.y_train)) == len(data.classes)
    mean, std = measured(data.x_train)
    slack = 0.006 if "subset" in name else 0.0006  # subsets of published sets keep the published numbers
    assert data.mean == pytest.approx(mean, abs=slack)
    assert data.std == pytest.approx(std, abs=slack)
    assert isinstance(load(name).x_train, np.memmap)
    batch = data.standardised(data.x_train[:2])
    assert batch.shape == (2, *data.shape)


@pytest.mark.data
@pytest.mark.parametrize(("name", "domains"), [("pacs32", 4), ("office-caltech10-32", 4), ("digits-domains", 4)])
def test_real_domains_are_there_in_training_and_test(name, domains):
    data = load(name)
    assert len(data.domains) == domains
    assert (np.bincount(data.domain_train, minlength=domains) > 0).all()
    assert (np.bincount(data.domain_test, minlength=domains) > 0).all()


@pytest.mark.data
def test_fednolowes_partition_on_the_real_labels():
    from undrift.federation import partition

    data = load("mnist")
    sizes = partition.dirichlet(0.1, numpy_seed=42)(data.y_train, 50, np.random.default_rng(0)).sizes
    assert (sizes.max(), sizes.argmax(), sizes.min(), sizes.argmin()) == (3997, 41, 32, 48)
