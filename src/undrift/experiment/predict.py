"""Predictions of a run's model on new data, which are read and standardised as the run's data were."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from undrift.contract.job import CHUNK
from undrift.contract.task import Task
from undrift.core.determinism import deterministic, one_thread
from undrift.core.errors import BadRequest
from undrift.core.words import shown
from undrift.data import load
from undrift.data.catalogue import names
from undrift.data.dataset import scaled, standardised
from undrift.data.readers import channels_first, npz
from undrift.federation import images
from undrift.federation.federation import Federation

if TYPE_CHECKING:
    from undrift.experiment.result import Result

FORMATS = (".csv", ".npz")


def outputs_of(result: Result, x: Any, client: int | str | None, where: str = "x") -> torch.Tensor:
    """The outputs of the global model, or of a client's, one row per sample."""
    module = result.model if client is None else result.personal(client)
    inputs = network_inputs(x, result.setup.federation, where)
    device = next(module.parameters()).device
    with one_thread(), deterministic(0), torch.no_grad():
        pieces = [module(inputs[at : at + CHUNK].to(device)) for at in range(0, len(inputs), CHUNK)]
    tensors = [piece if isinstance(piece, torch.Tensor) else piece.logits for piece in pieces]
    return torch.cat([tensor.float().cpu() for tensor in tensors])


def network_inputs(x: Any, federation: Federation, where: str) -> torch.Tensor:
    """Raw samples as the network takes them."""
    if not isinstance(federation.x, torch.Tensor):
        raise BadRequest(
            "the run's samples are columns or sequences of unequal length, which predict does not read; use the module "
            "ud.load(RUN).model in Python"
        )
    array = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    if array.dtype.kind not in "fiub" or array.ndim < 2 or not len(array):
        raise BadRequest(
            f"{where} must hold samples as numbers (N, …), at least one, not {array.dtype} of shape {array.shape}"
        )
    whole = not federation.x.is_floating_point()  # token ids, say
    if whole and array.dtype.kind not in "iu":
        raise BadRequest(f"{where} holds {array.dtype}, and the run's model takes whole numbers")
    array = array if whole else channels_first(array)
    if tuple(array.shape[1:]) != tuple(federation.shape):
        raise BadRequest(
            f"{where} has samples of shape {tuple(array.shape[1:])}, and the run's model takes {tuple(federation.shape)}"
        )
    if array.dtype.kind == "f" and not (good := np.isfinite(array.reshape(len(array), -1)).all(1)).all():
        raise BadRequest(f"{where} holds NaN or infinite values, first in sample {int(np.flatnonzero(~good)[0])}")
    if whole:
        return images.network_input(images.stored(torch.from_numpy(array.astype(np.int64))))
    tensor = scaled(array) if federation.scale is None else standardised(array, *federation.scale)
    return images.network_input(images.stored(tensor))


def read_inputs(data: str) -> np.ndarray:
    """Samples from an .npz (x, x_test or x_train), a .csv with one column per feature, or the test part of a data set."""
    path = Path(data).expanduser()
    if path.suffix in FORMATS and not path.is_file():
        raise BadRequest(f"there is no file {path}; give an .npz with the array x, a .csv, or the name of a data set")
    if path.suffix == ".npz":
        arrays = npz(path)
        for name in ("x", "x_test", "x_train"):
            if name in arrays:
                return arrays[name]
        raise BadRequest(f"{path} has no array x; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    if path.suffix == ".csv":
        return read_csv(path)
    if data in names():
        source = load(data)
        return source.x_test if len(source.x_test) else source.x_train
    raise BadRequest(f"{shown(data)} is no .npz, no .csv and no data set; give one of these")


def read_csv(path: Path) -> np.ndarray:
    """The numbers below the line of names."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f"{path} cannot be read as .csv: {error}") from None
    if len(rows) < 2:
        raise BadRequest(f"{path} has no samples; it needs a line of names and one line per sample")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise BadRequest(f"line {number} of {path} has {len(row)} values where the first has {len(rows[0])}")
        for name, value in zip(rows[0], row):
            try:
                float(value)
            except ValueError:
                raise BadRequest(
                    f"line {number} of {path} has {shown(value)} in the column {shown(name)}; give numbers, and only the "
                    "columns the model was trained on"
                ) from None
    return np.array(rows[1:], dtype=np.float32)


def write_predictions(path: Path, outputs: torch.Tensor, task: Task, labels: list[str]) -> None:
    """Write what the task predicts: classes with their probabilities, else numbers in the units of the targets. An .npz has
    the network's outputs as well."""
    arrays: dict[str, Any] = {"output": outputs.numpy(), "prediction": task.predict(outputs).numpy()}
    arrays["classes"] = np.array(labels)
    if "class_logits" in task.provides and outputs.dim() == 2:
        arrays["probability"] = outputs.softmax(1).numpy()
    if path.suffix not in FORMATS:
        raise BadRequest(f"predictions are written as .csv or .npz, not to {shown(str(path))}; name such a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npz":
            np.savez_compressed(path, **arrays)
        else:
            write_csv(path, arrays)
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}; choose another --out") from None


def write_csv(path: Path, arrays: dict[str, np.ndarray]) -> None:
    columns: dict[str, Any] = {"sample": range(len(arrays["output"]))}
    labels = [*arrays["classes"].tolist()]
    if "probability" in arrays:
        labels += [str(extra) for extra in range(len(labels), arrays["probability"].shape[1])]
        columns["prediction"] = [labels[number] for number in arrays["prediction"].tolist()]
        columns |= {f"p({label})": arrays["probability"][:, at].tolist() for at, label in enumerate(labels)}
    else:
        flat = arrays["prediction"].reshape(len(arrays["prediction"]), -1)
        one, named = flat.shape[1] == 1, flat.shape[1] == len(labels)
        names = ["prediction"] if one else labels if named else [f"prediction {at}" for at in range(flat.shape[1])]
        columns |= {name: flat[:, at].tolist() for at, name in enumerate(names)}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
