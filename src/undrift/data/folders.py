"""Images in folders, read with Pillow: train/CLASS/…, plain CLASS/…, or CLIENT/CLASS/…."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.words import in_short
from undrift.data.cache import Arrays

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
TEST_NAMES = ("test", "val", "valid")


def images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())


def folders_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def layout(root: Path) -> list[tuple[Path, str, str, str]]:
    """Every image under root as (path, split, class, client). The client is empty if the folders name none."""
    splits = {path.name: path for path in folders_in(root)}
    test = next((name for name in TEST_NAMES if name in splits), None)
    rows: list[tuple[Path, str, str, str]] = []
    if "train" in splits:
        rows += _classes(splits["train"], "train")
        rows += _classes(splits[test], "test") if test else []
    elif any(folders_in(child) for child in splits.values()):
        for name, child in splits.items():
            rows += _classes(child, "train", client=name)
    else:
        rows += _classes(root, "train")
    if not rows:
        raise BadRequest(
            f"{root} holds no images in train/CLASS/, CLASS/ or CLIENT/CLASS/; sort them into such folders"
        )
    return rows


def _classes(folder: Path, split: str, client: str = "") -> list[tuple[Path, str, str, str]]:
    return [(path, split, child.name, client) for child in folders_in(folder) for path in images_in(child)]


def image_folder(rows: list[tuple[Path, str, str, str]], size: int | None) -> Arrays:
    """The arrays of a `layout`. Classes and clients are numbered in the order of their names."""
    paths, splits, labels, clients = (np.array(column) for column in zip(*rows, strict=True))
    classes, y = np.unique(labels, return_inverse=True)
    x = read_images([Path(path) for path in paths], size)
    train = splits == "train"
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[~train], "y_test": y[~train], "classes": classes}
    if clients[0]:
        arrays["clients"], arrays["client_train"] = np.unique(clients, return_inverse=True)
    return arrays


def read_images(paths: Iterable[Path], size: int | None = None) -> np.ndarray:
    """uint8 (N, C, H, W): one channel if every image is grey, else three. `size` resizes all images to a square."""
    from PIL import Image

    decoded: list[np.ndarray] = []
    first: Path | None = None
    for path in paths:
        try:
            with Image.open(path) as image:
                plain = image.convert("L" if image.mode in ("1", "L") else "RGB")
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise BadRequest(f"cannot read the image {path}: {in_short(error)}; repair or remove it") from None
        if size is not None:
            plain = plain.resize((size, size), Image.Resampling.BILINEAR)
        array = np.asarray(plain)
        if first is None:
            first = path
        elif array.shape[:2] != decoded[0].shape[:2]:
            (h0, w0), (h, w) = decoded[0].shape[:2], array.shape[:2]
            raise BadRequest(
                f"images must be of one size, but {first} is {w0}×{h0} and {path} is {w}×{h}; "
                "resize them, or load with size=32, for example"
            )
        decoded.append(array)
    if any(array.ndim == 3 for array in decoded):
        decoded = [array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2) for array in decoded]
        return np.ascontiguousarray(np.stack(decoded).transpose(0, 3, 1, 2))
    return np.stack(decoded)[:, None]


def resized(images: np.ndarray, side: int) -> np.ndarray:
    """uint8 (N, C, H, W) resized to side × side, bilinear, channel by channel."""
    from PIL import Image

    planes = images.reshape(-1, *images.shape[2:])
    new = [np.asarray(Image.fromarray(plane).resize((side, side), Image.Resampling.BILINEAR)) for plane in planes]
    return np.stack(new).reshape(*images.shape[:2], side, side)
