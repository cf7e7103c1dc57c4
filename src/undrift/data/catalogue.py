"""`load`: a data set by its name, a user's .npz, .csv or a folder of images by its path."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core import text
from undrift.core.errors import BadRequest, unknown
from undrift.data import domains
from undrift.data.cache import Arrays, cache_folder, cached
from undrift.data.dataset import DataSet, assembled
from undrift.data.decode import DIGITS, digits_set
from undrift.data.embedded import embedded
from undrift.data.entries import ENTRIES, RESEARCH, Entry
from undrift.data.find import Files, locate, missing
from undrift.data.options import part_of
from undrift.data.own import own_csv, own_folder, own_npz, with_moments

NO_FILES = Files((), ())
IN_SKLEARN = "(in scikit-learn)"


def _no_files(paths: list[Path]) -> Arrays:
    raise NotImplementedError  # such data are made by `_made`


def _table(columns: int, classes: tuple[str, ...], source: str, note: str, task: str = "classification") -> Entry:
    return Entry(
        (columns,), classes, (), (), "CC BY 4.0", f"{source} {IN_SKLEARN}", NO_FILES, _no_files, note, task=task
    )


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
    "diabetes": _table(
        10, ("progression",), "https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html",
        "442 patients, the disease a year later; fixed split 354 + 88", "regression",
    ),
    "breast-cancer": _table(
        30, ("malignant", "benign"), "https://archive.ics.uci.edu/dataset/17", "569 tumours, fixed stratified split",
    ),
    "wine": _table(
        13, ("class_0", "class_1", "class_2"), "https://archive.ics.uci.edu/dataset/109",
        "178 wines, fixed stratified split",
    ),
    "shapes": Entry(
        (3, 24, 24), ("background", "circle", "square", "triangle"), (), (), "drawn by Undrift", "a seed", NO_FILES,
        _no_files, "shapes(clients=20, pictures=50, side=24, targets=masks, seed=0): targets=labels is multilabel",
        task="segmentation",
    ),
    "shakespeare": Entry(
        (80,), None, (), (), "public domain", "the plays as JSON {play: {role: [speech, …]}}",
        Files((".", "shakespeare"), ("shakespeare_roles.json",)), _no_files,
        "shakespeare(roles=100, pieces=20, length=80): the next character; clients are the roles with two speeches or more",
        task="sequence",
    ),
}  # fmt: skip
EMBEDDED = ("digits", "diabetes", "breast-cancer", "wine", "shapes")
MADE = ("diabetes", "breast-cancer", "wine", "shapes", "shakespeare")  # by `_made`
WITH_OPTIONS = ("shapes", "shakespeare", *ENTRIES)


def names() -> list[str]:
    """The data sets known by name. The embedded ones come first."""
    return [*EMBEDDED, "shakespeare", *ENTRIES, "domainnet", "digits-domains"]


def named(data: str) -> text.Call | None:
    """What `shapes(clients=50)` or `digits` calls, None if it is not the name of a data set."""
    word = data.partition("(")[0].strip()
    if word not in names():
        return None
    call = text.parse(data) if "(" in data else text.Call(word)
    if (call.args or call.options) and word not in WITH_OPTIONS:
        raise BadRequest(
            f"the data set {word} takes no options, not {data!r}; those that do are {', '.join(WITH_OPTIONS[:2])}, and "
            "the sets of images (train, test)"
        )
    return call


def about(name: str) -> Entry:
    """Shape, classes, normalisation (empty: measured), licence and source of a data set. Reads no files."""
    if name not in names():
        raise unknown("data set", name, names())
    return ENTRIES.get(name) or COMPOSED[name]


def full_path(data: Any) -> Any:
    """The text of a user's own data with its whole path, so that it names the same files from every directory. Names of
    data sets, and objects, stay as they are."""
    if not isinstance(data, (str, os.PathLike)) or str(data).startswith("object:") or named(str(data)):
        return data
    path = Path(data).expanduser()
    return (
        str(path.absolute()) if path.suffix in (".npz", ".csv") or len(path.parts) > 1 or path.is_dir() else str(data)
    )


def available(name: str) -> bool:
    """Whether the data set can be loaded without a download."""
    name = name.partition("(")[0].strip()
    if name == "digits-domains":
        return all(available(source) for _, source, *_ in domains.DIGIT_DOMAINS)
    return name in EMBEDDED or locate(name, about(name).files) is not None


def load(
    name: str,
    folder: Path | None = None,
    *,
    size: int | None = None,
    target: str | None = None,
    client_column: str | None = None,
    task: Any = None,
) -> DataSet:
    """Load the data set of this name, or the user's own data from a path.

    `folder` is where its files are (no other place is searched then). `size` is the side to which images are resized.
    It applies to image folders and DomainNet. `target` names the column of a .csv that is predicted (several are joined by
    commas), `client_column` the one with the client of every row, `task` what the target means (classification).
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise BadRequest(f"size must be a whole number of pixels of at least 1, not {size!r}")
    if not str(name).strip():
        raise BadRequest("the name of the data is empty; give one of `undrift data list`, or a path")
    folder = Path(folder) if folder is not None else None
    path = (folder / name) if folder is not None else Path(name).expanduser()
    if path.suffix == ".csv":
        return own_csv(path, target, client_column, task)
    for option, value in (("target", target), ("client-column", client_column)):
        if value is not None:
            raise BadRequest(f"--{option} names a column of a .csv file, and the data are {name!r}; leave it out")
    if call := named(name):
        entry = about(call.name)
        if call.name in MADE:
            return _made(call, entry, folder)
        if call.args or call.options:
            arrays = text.build(
                "data set", call, {call.name: partial(part_of, call.name, _read(call.name, folder, size))}
            )
            return assembled(name, arrays, entry.licence, entry.source, entry.note)
        return assembled(name, _read(name, folder, size), entry.licence, entry.source, entry.note)
    if path.suffix == ".npz":
        return own_npz(path, task)
    if path.is_dir() or len(path.parts) > 1:
        return own_folder(path, size)
    raise unknown("data set", name, names())


def _made(call: text.Call, entry: Entry, folder: Path | None) -> DataSet:
    """The data sets that are not classes of images: tables, drawings, texts."""
    if call.name == "shapes":
        from undrift.data.shapes import shapes

        arrays, task = text.build("data set", call, {"shapes": shapes})
        return assembled(call.name, with_moments(arrays), entry.licence, entry.source, entry.note, task)
    if call.name == "shakespeare":
        from undrift.data.plays import as_data_set, shakespeare

        arrays, chosen = text.build("data set", call, {call.name: partial(shakespeare, _paths(call.name, folder))})
        return as_data_set(arrays, entry.licence, entry.source, chosen or entry.note)
    arrays = with_moments(embedded(call.name))
    task = None
    if entry.task == "regression":
        task = f"regression(center={arrays['y_train'].mean():.6g}, scale={arrays['y_train'].std():.6g})"
    return assembled(call.name, arrays, entry.licence, entry.source, entry.note, task)


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
