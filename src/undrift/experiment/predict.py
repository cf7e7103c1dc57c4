"""Predictions of a run's model on new data, which are read and standardised as the run's data were."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from undrift.contract.client_data import CHUNK
from undrift.contract.task import Task
from undrift.core import samples
from undrift.core.determinism import deterministic, one_thread
from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged
from undrift.core.words import shown
from undrift.experiment.new_samples import FORMATS, stored_samples
from undrift.federation import images

if TYPE_CHECKING:
    from undrift.experiment.result import Result


def outputs_of(result: Result, x: Any, client: int | str | None, where: str = "x") -> torch.Tensor:
    """The outputs of the global model, or of a client's, one row per sample."""
    module = result.model if client is None else result.personal(client)
    inputs = stored_samples(x, result.setup.federation, where)
    device = next(module.parameters()).device
    pieces = []
    with one_thread(), deterministic(0), torch.no_grad():
        for at in range(0, len(inputs), CHUNK):
            batch = images.network_input(inputs[at : at + CHUNK]).to(device)
            try:
                found = module(**batch.columns) if isinstance(batch, Columns) else module(batch)
            except (IndexError, RuntimeError) as error:  # a token that no embedding has
                raise BadRequest(f"the run's model cannot take {where}: {str(error).splitlines()[0]}") from None
            pieces.append((found if isinstance(found, torch.Tensor) else found.logits).float().cpu())
    return samples.stacked_outputs(pieces)


def lengths_of(x: Any) -> torch.Tensor | None:
    """How many places of every sample there are, where samples are sequences."""
    if isinstance(x, Columns):
        return next((column.lengths for _, column in x.items() if isinstance(column, Ragged)), None)
    return x.lengths if isinstance(x, Ragged) else None


def write_predictions(
    path: Path, outputs: torch.Tensor, task: Task, labels: list[str], lengths: torch.Tensor | None = None
) -> None:
    """Write what the task predicts: classes with their probabilities, else numbers in the units of the targets. An .npz has
    the network's outputs as well. With `lengths` there is a prediction per place of every sequence, all in a row."""
    predicted = task.predict(outputs)
    arrays: dict[str, Any] = {"classes": np.array(labels)}
    if lengths is None:
        arrays |= {"output": outputs.numpy(), "prediction": predicted.numpy()}
    else:
        there = torch.arange(predicted.size(1)) < lengths[:, None]
        offsets = np.concatenate([[0], lengths.cumsum(0).numpy()])
        arrays |= {"output": outputs[there].numpy(), "prediction": predicted[there].numpy(), "offsets": offsets}
    if "class_logits" in task.provides and outputs.dim() == 2 and lengths is None:
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
    if "offsets" in arrays:
        sizes = np.diff(arrays["offsets"])
        columns["sample"] = np.repeat(np.arange(len(sizes)), sizes).tolist()
        columns["place"] = np.concatenate([np.arange(size) for size in sizes]).tolist()
        columns["prediction"] = [labels[token] for token in arrays["prediction"].tolist()]
    elif "probability" in arrays:
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
