"""Another data set, to see whether a model notices that it is another one (`--ood`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from undrift import data
from undrift.errors import BadRequest
from undrift.federation import Federation, rows_of


def other_set(given: Any, federation: Federation) -> tuple[str, torch.Tensor]:
    """(name, test samples of the other set, standardised as the federation's own)."""
    source = data.load(given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else source.name
    if name == federation.name:
        raise BadRequest(f"--ood {name} is the data set the run trains on; name another one")
    if source.shape != federation.shape:
        fits = [
            known for known in data.names() if known != federation.name and data.about(known).shape == federation.shape
        ]
        hint = f"; {', '.join(fits)} have that shape" if fits else ""
        raise BadRequest(
            f"--ood {name} has samples of shape {source.shape} and {federation.name} of {federation.shape}{hint}"
        )
    x = source.x_test if len(source.x_test) else source.x_train
    if federation.scale is None:
        rows = rows_of(source.standardised(x))
    else:
        mean, std = (torch.tensor(np.asarray(v), dtype=torch.float32) for v in federation.scale)
        rows = (rows_of(source.scaled(x)) - mean) / std  # channels and columns come last
    if (
        rows.shape[1:] == federation.test_x.shape[1:]
        and len(rows) == len(federation.test_x)
        and torch.equal(rows, federation.test_x)
    ):
        raise BadRequest(f"--ood {name} holds the very samples the run is tested on; name another data set")
    return name, rows
