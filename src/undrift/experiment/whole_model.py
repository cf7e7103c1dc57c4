"""A run's model as a file: whole, or only what was trained."""

from __future__ import annotations

from pathlib import Path

from undrift.core.errors import BadRequest
from undrift.experiment.result import Mixture, Result
from undrift.experiment.runner import model_metadata
from undrift.store.durable import write_file
from undrift.store.weights import weights_file


def save_model(result: Result, path: Path, client: int | str | None = None, adapter: bool = False) -> tuple[int, int]:
    """Write the global model, or a client's, as a state dict. `adapter` leaves out the frozen parameters, which the
    header names by their hash. Returns how many tensors and numbers the file has."""
    if client is None and result.setup.plan.private is not None:
        raise BadRequest("a method with private entries has no global model; give --client for the model of one client")
    module = result.model if client is None else result.personal(client)
    if isinstance(module, Mixture):
        raise BadRequest(
            f"client {client} uses a mixture of {len(module.weights)} models, which one file cannot hold; use "
            "ud.load(RUN).personal(CLIENT) in Python"
        )
    frozen = result.setup.runtime.model.frozen_names()
    if adapter and not frozen:
        raise BadRequest("all parameters of this model were trained, so it has no base; leave --adapter out")
    state = {name: value for name, value in module.state_dict().items() if not (adapter and name in frozen)}
    metadata = model_metadata(result.setup)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, weights_file(state, metadata))
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}; choose another file") from None
    return len(state), sum(value.numel() for value in state.values())
