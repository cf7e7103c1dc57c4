"""Data sets with several domains: DomainNet from its folders and lists, and four sets of digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from undrift.core.errors import BadRequest
from undrift.data.cache import Arrays
from undrift.data.decode import DIGITS
from undrift.data.find import Files
from undrift.data.folders import read_images, resized
from undrift.data.own import with_moments

# The ten classes of FedBSS's study: name of the class folder, and its number in DomainNet's lists.
DOMAINNET_CLASSES = {
    "airplane": 1, "clock": 73, "axe": 11, "basketball": 19, "bicycle": 29,
    "bird": 31, "strawberry": 290, "flower": 121, "pizza": 225, "bracelet": 39,
}  # fmt: skip
DOMAINNET_DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
DOMAINNET_FILES = Files(
    ("domainnet", "DomainNet"),
    tuple(f"{domain}_{split}.txt" for domain in DOMAINNET_DOMAINS for split in ("train", "test")),
)
DOMAINNET_SIDE = 64

# Domain, its data set, and how many training and test samples are used. MNIST gives as many as SVHN's subset: with
# 60,000 against 7,000 samples, MNIST would dominate the federation.
DIGIT_DOMAINS = (
    ("mnist-subset", "mnist", 7000, 2000),
    ("usps", "usps", None, None),
    ("svhn-subset", "svhn-subset", None, None),
    ("mnist-m-subset", "mnist-m-subset", None, None),
)


def domainnet(lists: list[Path], side: int) -> Arrays:
    """The images of ten classes named in the lists (`domain/class/file.jpg number` per line), as side × side."""
    wanted = {number: label for label, number in enumerate(DOMAINNET_CLASSES.values())}
    held: dict[str, list[tuple[Path, int, int]]] = {"train": [], "test": []}
    for index, path in enumerate(lists):
        domain, split = index // 2, ("train", "test")[index % 2]
        for line in path.read_text().splitlines():
            name, _, number = line.strip().rpartition(" ")
            if not number:
                continue
            if not number.isdigit() or not name:
                raise BadRequest(
                    f"{path} has the line {line!r}, which is not 'domain/class/file number'; fetch it again"
                )
            if int(number) in wanted:
                held[split].append((path.parent / name, wanted[int(number)], domain))
    arrays: Arrays = {"classes": np.array(list(DOMAINNET_CLASSES)), "domains": np.array(DOMAINNET_DOMAINS)}
    for split, rows in held.items():
        if not rows:
            raise BadRequest(f"DomainNet's {split} lists name no image of the ten classes; fetch the lists again")
        arrays[f"x_{split}"] = read_images([row[0] for row in rows], side)
        arrays[f"y_{split}"] = np.array([row[1] for row in rows], dtype=np.int64)
        arrays[f"domain_{split}"] = np.array([row[2] for row in rows], dtype=np.int64)
    if arrays["x_train"].shape[1] != arrays["x_test"].shape[1]:
        raise BadRequest(
            "DomainNet's training images are in colour and its test images grey, or the reverse; fetch it again"
        )
    return with_moments(arrays)


def digits_domains(load: Callable[[str], Arrays]) -> Arrays:
    """Four sets of digits as 3 × 32 × 32: sides of 28 are padded, of 16 enlarged, grey is repeated on 3 channels."""
    columns: dict[str, list[np.ndarray]] = {}
    for number, (_, source, *first) in enumerate(DIGIT_DOMAINS):
        arrays = load(source)
        for split, count in zip(("train", "test"), first, strict=True):
            x, y = arrays[f"x_{split}"][:count], arrays[f"y_{split}"][:count]
            columns.setdefault(f"x_{split}", []).append(_as_colour(x))
            columns.setdefault(f"y_{split}", []).append(y)
            columns.setdefault(f"domain_{split}", []).append(np.full(len(y), number, dtype=np.int64))
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays |= {"classes": np.array(DIGITS), "domains": np.array([name for name, *_ in DIGIT_DOMAINS])}
    return with_moments(arrays)


def _as_colour(x: np.ndarray) -> np.ndarray:
    side = x.shape[-1]
    if side < 24:
        x = resized(x, 32)
    elif side < 32:
        margin = (32 - side) // 2
        x = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    return np.repeat(x, 3, axis=1) if x.shape[1] == 1 else np.asarray(x)
