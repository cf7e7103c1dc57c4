"""`load`: a data set by its name, a user's .npz or a folder of images by its path."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest, unknown
from undrift.data import domains
from undrift.data.cache import Arrays, cache_folder, cached
from undrift.data.dataset import DataSet, assembled
from undrift.data.decode import DIGITS, digits_set
from undrift.data.entries import ENTRIES, RESEARCH, Entry
from undrift.data.find import Files, locate, missing
from undrift.data.own import own_folder, own_npz

NO_FILES = Files((), ())

# Data sets that are more than a few files to decode: `_read` assembles each of them.
COMPOSED: dict[str, Entry] = {
    "digits": Entry(
        (1, 8, 8), DIGITS, (0.2878,), (0.3544,), "CC BY 4.0",
        "https://archive.ics.uci.edu/dataset/80 (in scikit-learn)", NO_FILES,
        lambda paths: digits_set(), "8×8 images, fixed stratified split 1,437 + 360",
    ),
    "domainnet": Entry(
        (3, domains.DOMAINNET_SIDE, domains.DOMAINNET_SIDE), tuple(domains.DOMAINNET_CLASSES), (), (),
        "fair use, research only", "http://ai.bu.edu/M3SDA/", domains.DOMAINNET_FILES,
        partial(domains.domainnet, side=domains.DOMAINNET_SIDE), "ten classes, six domains, brought to one size",
    ),
    "digits-domains": Entry(
        (3, 32, 32), DIGITS, (), (), RESEARCH, "mnist, usps, svhn-subset, mnist-m-subset", NO_FILES,
        lambda paths: domains.digits_domains(_arrays),
        "MNIST (7,000 + 2,000 of it), USPS, SVHN subset, MNIST-M subset, all 3×32×32",
    ),
}  # fmt: skip


def names() -> list[str]:
    """The data sets known by name. The embedded one comes first."""
    return ["digits", *ENTRIES, "domainnet", "digits-domains"]


def about(name: str) -> Entry:
    """Shape, classes, normalisation (empty: measured), licence and source of a data set. Reads no files."""
    if name not in names():
        raise unknown("data set", name, names())
    return ENTRIES.get(name) or COMPOSED[name]


def full_path(data: Any) -> Any:
    """The text of a user's own data with its whole path, so that it names the same files from every directory. Names of
    data sets, and objects, stay as they are."""
    if not isinstance(data, (str, os.PathLike)) or str(data) in names() or str(data).startswith("object:"):
        return data
    path = Path(data).expanduser()
    return str(path.absolute()) if path.suffix == ".npz" or len(path.parts) > 1 or path.is_dir() else str(data)


def available(name: str) -> bool:
    """Whether the data set can be loaded without a download."""
    if name == "digits-domains":
        return all(available(source) for _, source, *_ in domains.DIGIT_DOMAINS)
    return name == "digits" or locate(name, about(name).files) is not None


def load(name: str, folder: Path | None = None, *, size: int | None = None, task: Any = None) -> DataSet:
    """Load the data set of this name, or the user's own data from a path.

    `folder` is where its files are (no other place is searched then). `size` is the side to which images are resized.
    It applies to image folders and DomainNet. `task` says what y of an .npz is, if it is no class.
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise BadRequest(f"size must be a whole number of pixels of at least 1, not {size!r}")
    folder = Path(folder) if folder is not None else None
    if name in names():
        entry = about(name)
        return assembled(name, _read(name, folder, size), entry.licence, entry.source, entry.note)
    path = (folder / name) if folder is not None else Path(name).expanduser()
    if path.suffix == ".npz":
        return own_npz(path, task)
    if path.is_dir() or len(path.parts) > 1:
        return own_folder(path, size)
    raise unknown("data set", name, names())


def _read(name: str, folder: Path | None, size: int | None) -> Arrays:
    if name == "digits":
        return digits_set() | {"classes": np.array(DIGITS), "mean": np.array([0.2878]), "std": np.array([0.3544])}
    if name == "domainnet":
        return _domainnet(folder, size or domains.DOMAINNET_SIDE)
    if name == "digits-domains":
        return _digits_domains(folder)
    return _arrays(name, folder)


def _paths(name: str, folder: Path | None) -> list[Path]:
    entry = about(name)
    return locate(name, entry.files, folder) or _downloaded(name, entry)


def _arrays(name: str, folder: Path | None = None) -> Arrays:
    """The decoded arrays, class names and normalisation of a data set."""
    entry, paths = about(name), _paths(name, folder)
    arrays = cached(name, paths, partial(entry.read, paths))
    if entry.classes is not None:
        arrays["classes"] = np.array(entry.classes)
    elif "classes" not in arrays:
        arrays["classes"] = np.arange(int(arrays["y_train"].max(initial=0)) + 1)
    return arrays | {"mean": np.array(entry.mean), "std": np.array(entry.std)}


def _domainnet(folder: Path | None, side: int) -> Arrays:
    lists = _paths("domainnet", folder)
    return cached("domainnet", lists, partial(domains.domainnet, lists, side), f"side={side}")


def _digits_domains(folder: Path | None) -> Arrays:
    sources = [path for _, source, *_ in domains.DIGIT_DOMAINS for path in _paths(source, folder)]
    return cached("digits-domains", sources, partial(domains.digits_domains, partial(_arrays, folder=folder)))


def _downloaded(name: str, entry: Entry) -> list[Path]:
    if entry.download is None:
        raise missing(name, entry.files, entry.source)
    from undrift.data.download import FAILURES

    root = cache_folder() / "data"
    try:
        entry.download.into(root)
    except FAILURES as error:
        raise missing(name, entry.files, entry.source, [str(error)]) from None
    found = entry.files.within(root)
    if found is None:
        raise missing(name, entry.files, entry.source, ["the archive lacks a file"])
    return found
