"""New data for a run's model: read from a file, and brought to the form that the run's own samples have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.core import samples
from undrift.core.errors import BadRequest, unknown
from undrift.core.samples import Columns, Ragged
from undrift.core.words import shown
from undrift.data import load
from undrift.data.catalogue import named
from undrift.data.csv_file import csv_columns
from undrift.data.dataset import scaled, standardised
from undrift.data.readers import channels_first, npz
from undrift.experiment.options import Options
from undrift.federation import images
from undrift.federation.federation import Federation

FORMATS = (".csv", ".npz")


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_inputs(data: str, options: Options, federation: Federation) -> Any:
    """Samples from an .npz (x, x_test or x_train; columns as x.NAME, sequences with x.offsets and x.pad), from a .csv, or
    the test part of a data set."""
    path = Path(data).expanduser()
    if path.suffix in FORMATS and not path.is_file():
        raise BadRequest(f"there is no file {path}; give an .npz with the array x, a .csv, or the name of a data set")
    if path.suffix == ".npz":
        arrays = npz(path)
        found = (samples.from_arrays(name, arrays) for name in ("x", "x_test", "x_train"))
        if (first := next((one for one in found if one is not None), None)) is not None:
            return first
        raise BadRequest(
            f"{path} has no array x; it holds {', '.join(sorted(arrays)) or 'nothing'}; name the samples x"
        )
    if path.suffix == ".csv":
        return read_csv(path, wanted_columns(options, federation.x), isinstance(federation.x, Columns))
    if named(data):
        source = load(data)
        return source.x_test if len(source.x_test) else source.x_train
    raise BadRequest(f"{shown(data)} is no .npz, no .csv and no data set; give one of these")


def wanted_columns(options: Options, x: Any) -> list[str] | None:
    """The names of the run's inputs, in order: the columns of its samples, or of its .csv but for the target and the client.
    None where they have no names."""
    if isinstance(x, Columns):
        return list(x.keys())
    if not str(options.data).endswith(".csv"):
        return None
    columns = list(csv_columns(Path(str(options.data)).expanduser()))
    target = str(options.target)
    taken = {options.client_column, *([target] if target in columns else map(str.strip, target.split(",")))}
    return [name for name in columns if name not in taken]


def read_csv(path: Path, names: Sequence[str] | None, by_name: bool) -> Any:
    """The columns of these names, whatever else the file has; all of them where inputs have no names."""
    columns = csv_columns(path)
    for name in names or ():
        if name not in columns:
            raise unknown(f"column of {path}, which the run's model takes,", name, columns)
    chosen = {name: columns[name] for name in names or columns}
    for name, values in chosen.items():
        if values.dtype.kind not in "if":
            place, word = next((n, cell) for n, cell in enumerate(values.tolist(), 2) if not is_number(cell))
            raise BadRequest(
                f"line {place} of {path} has {shown(word)} in the column {shown(name)}; give numbers, and only the "
                "columns the model was trained on"
            )
    return Columns(chosen) if by_name else np.stack(list(chosen.values()), axis=1)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# ---- as the run's own samples ----------------------------------------------------------------------------------------


def stored_samples(x: Any, federation: Federation, where: str) -> Any:
    """Raw samples as the run's federation stores its own. A network gets them by `images.network_input`."""
    known = federation.x
    if isinstance(known, Ragged):
        return sequences(x, known, where)
    if isinstance(known, Columns):
        given = x if isinstance(x, Columns) else Columns(x) if isinstance(x, dict) else None
        if given is None:
            raise BadRequest(f"{where} is one array, and the run's model takes the columns {', '.join(known.keys())}")
        for name in known.keys():  # noqa: SIM118
            if name not in given.keys():  # noqa: SIM118
                raise unknown(f"column of {where}, which the run's model takes,", name, given.keys())
        return Columns({name: column_of(given[name], known[name], f"{where}, {name},") for name in known.keys()})  # noqa: SIM118
    return plain(x, federation, where)


def column_of(x: Any, known: Any, where: str) -> Any:
    """One column, used as it is."""
    if isinstance(known, Ragged):
        return sequences(x, known, where)
    if isinstance(x, Ragged):
        raise BadRequest(f"{where} holds sequences, and the run's model takes one array")
    array = numbers(x, not known.is_floating_point(), where, axes=1)
    shape = samples.shape(known)
    array = array[:, None] if shape == (1,) and array.ndim == 1 else array
    same_shape(array.shape[1:], shape, where)
    return samples.as_given(array)


def sequences(x: Any, known: Ragged, where: str) -> Ragged:
    """Sequences, padded with the run's value."""
    if not isinstance(x, (Ragged, list, tuple)):
        raise BadRequest(
            f"{where} is one array, and the run's samples are sequences of unequal length; give x, x.offsets and x.pad, or in "
            "Python a list of sequences"
        )
    given = Ragged(x.values, known.pad, x.offsets) if isinstance(x, Ragged) else Ragged(x, known.pad)
    if not len(given):
        raise BadRequest(f"{where} holds no sequence; give at least one")
    values = numbers(given.values, not known.values.is_floating_point(), where, axes=1)
    same_shape(values.shape[1:], tuple(known.values.shape[1:]), where)
    return Ragged.made(torch.from_numpy(values).to(known.values.dtype), given.offsets, known.pad)


def plain(x: Any, federation: Federation, where: str) -> torch.Tensor:
    """One array, standardised as the run's data were."""
    if isinstance(x, (Ragged, Columns)):
        raise BadRequest(f"{where} holds columns or sequences, and the run's model takes one array; give x alone")
    whole = not federation.x.is_floating_point()  # token ids, say
    array = numbers(x, whole, where, axes=2)
    array = array if whole else channels_first(array)
    same_shape(array.shape[1:], tuple(federation.shape), where)
    if whole:
        stored: torch.Tensor = images.stored(torch.from_numpy(array))
    else:
        stored = images.stored(scaled(array) if federation.scale is None else standardised(array, *federation.scale))
    return stored


def numbers(x: Any, whole: bool, where: str, axes: int) -> np.ndarray:
    """An array of finite numbers with at least so many axes; whole ones where the run's are."""
    array = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    if array.dtype.kind not in "fiub" or array.ndim < axes or not len(array):
        raise BadRequest(
            f"{where} must hold samples as numbers (N, …), at least one, not {array.dtype} of shape {array.shape}"
        )
    if whole and array.dtype.kind not in "iu":
        raise BadRequest(f"{where} holds {array.dtype}, and the run's model takes whole numbers")
    if array.dtype.kind == "f" and not (good := np.isfinite(array.reshape(len(array), -1)).all(1)).all():
        raise BadRequest(f"{where} holds NaN or infinite values, first in sample {int(np.flatnonzero(~good)[0])}")
    return array.astype(np.int64) if whole else array


def same_shape(shape: tuple[int, ...], wanted: tuple[int, ...], where: str) -> None:
    if tuple(shape) != tuple(wanted):
        raise BadRequest(f"{where} has samples of shape {tuple(shape)}, and the run's model takes {tuple(wanted)}")
