"""What a site's data.py needs: images from folders, tables from CSV files, standardised as in the simulation.

All functions return what `load()` returns: (x, y), or (x, y, x_test, y_test) where the folders name a test part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest, unknown
from undrift.data.csv_file import read_lines
from undrift.data.dataset import standardised as with_moments
from undrift.data.folders import layout, read_images


def standardised(x: Any, mean: Sequence[float], std: Sequence[float]) -> Any:
    """(x − mean)/std as float32, by channel (N, C, H, W) or by column (N, F). Bytes are scaled to 0…1 first. Images
    without a channel axis (N, H, W) get one. Without means x is used as it is."""
    if not mean:
        return x
    x = np.asarray(x)
    x = x[:, None] if x.ndim == 3 else x
    if x.ndim not in (2, 4) or not len(mean) == len(std) or len(mean) not in (1, x.shape[1]):
        raise BadRequest(
            f"samples of shape {x.shape[1:]} do not fit {len(mean)} means and {len(std)} deviations; give one per channel"
        )
    return with_moments(x, mean, std)


def image_folder(
    folder: str | Path, labels: Sequence[str], shape: Sequence[int], mean: Sequence[float], std: Sequence[float]
) -> tuple[Any, ...]:
    """Images in CLASS/… (or train/CLASS/… and test/CLASS/…), resized to the model's shape (channels, height, width).

    Folders are classes: their names must be in `labels`, whose order numbers them."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise BadRequest(f"there is no folder {folder}; give one that holds CLASS/… or train/CLASS/…")
    if len(shape) != 3 or shape[1] != shape[2]:
        raise BadRequest(
            f"the model takes samples of shape {tuple(shape)}; this reader makes square images only, so write load() yourself"
        )
    rows = layout(folder)
    if clients := sorted({client for *_, client in rows if client}):
        raise BadRequest(f"{folder} holds {clients[0]}/CLASS/…; a site has one client, so give {folder / clients[0]}")
    y = numbered([name for _, _, name, _ in rows], labels, str(folder))
    x = read_images([path for path, *_ in rows], int(shape[1]))
    if x.shape[1] == 1 and shape[0] == 3:
        x = np.repeat(x, 3, axis=1)
    if x.shape[1] != shape[0]:
        raise BadRequest(f"{folder} holds images of {x.shape[1]} channels, the model takes {shape[0]}; convert them")
    train = np.array([split == "train" for _, split, _, _ in rows])
    x = standardised(x, mean, std)
    return (x, y) if train.all() else (x[train], y[train], x[~train], y[~train])


def table(
    file: str | Path,
    label: str | Sequence[str],
    labels: Sequence[str] | None,
    mean: Sequence[float],
    std: Sequence[float],
    features: Sequence[str] | None = None,
) -> tuple[Any, np.ndarray]:
    """A CSV file with a header: one row is one sample. `label` is the column with the class names, which `labels` numbers.
    Without `labels` it holds numbers, and there may be several. `features` are the columns with numbers, in the
    simulation's order (default: all others, in the file's order)."""
    file = Path(file).expanduser()
    lines = read_lines(file)
    columns = [name.strip() for name in lines[0]]
    rows = [dict(zip(columns, line)) for line in lines[1:]]
    targets = [label] if isinstance(label, str) else list(label)
    features = [column for column in columns if column not in targets] if features is None else list(features)
    for column in (*targets, *features):
        if column not in columns:
            raise unknown(f"column of {file}", column, columns)
    x = standardised(numbers(rows, features, file), mean, std)
    if labels is not None:
        return x, numbered([row.get(targets[0], "").strip() for row in rows], labels, str(file))
    y = numbers(rows, targets, file)
    return x, y[:, 0] if isinstance(label, str) else y


def numbers(rows: Sequence[Mapping[str, str]], columns: Sequence[str], file: Path) -> np.ndarray:
    """The cells of these columns as float32 (rows, columns)."""
    found = [[number(row.get(column), column, line, file) for column in columns] for line, row in enumerate(rows, 2)]
    return np.array(found, dtype=np.float32).reshape(len(rows), len(columns))


def number(text: str | None, column: str, line: int, file: Path) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise BadRequest(f"{file}, line {line}: {column} is no number; fill or remove it") from None


def numbered(names: Sequence[str], labels: Sequence[str], where: str) -> np.ndarray:
    """Class names as numbers, in the order of `labels`."""
    numbers = {str(name): number for number, name in enumerate(labels)}
    for name in names:
        if name not in numbers:
            raise BadRequest(f"{where} has the class {name!r}, the deployment's are {', '.join(numbers)}; rename it")
    return np.array([numbers[name] for name in names], dtype=np.int64)
