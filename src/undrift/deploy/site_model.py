"""Opens the models in a site's folder, without Flower and without the server: `ud.load(FOLDER)`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.experiment.foreign_code import foreign_code, refusal, untrusted
from undrift.experiment.network import build_module, read_tensors
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Mixture
from undrift.federation import images
from undrift.federation.federation import Federation
from undrift.store.own_files import refuse_links

KEYS = ("site", "model", "method", "round", "shape", "labels", "private", "personal")


class SiteModel:
    """`.model` is the global model, `.personal()` the site's personal model, both as plain modules in eval mode."""

    def __init__(self, folder: Path, model: Any = None, trust: bool = False) -> None:
        refuse_links(folder)
        self.folder, self.given, self.trust = folder, model, trust
        path = folder / "site.toml"
        try:
            self.about: dict[str, Any] = tomllib.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise BadRequest(
                f"{path} cannot be read: {error}; the next evaluation at the site writes it again"
            ) from None
        if missing := [key for key in KEYS if key not in self.about]:
            raise BadRequest(f"{path} has no key {missing[0]}; the next evaluation at the site writes it again")

    @property
    def model(self) -> nn.Module:
        if self.about["private"]:
            raise BadRequest("with private entries no global model exists; use .personal() for the site's own model")
        return self._module("model.safetensors")

    def personal(self) -> nn.Module:
        entries = self.about["personal"]
        modules = [self._module(entry["file"]) for entry in entries]
        return modules[0] if len(modules) == 1 else Mixture(modules, [entry["weight"] for entry in entries])

    def _module(self, name: str) -> nn.Module:
        given = self.about["model"] if self.given is None else self.given
        if self.given is None and (names := untrusted(foreign_code({"model": given}), self.trust)):
            raise refusal(self.folder, names, "give it with model=…, or trust it: ud.load(FOLDER, trust=True)")
        shape = tuple(self.about["shape"])
        rows = torch.zeros(2, *((*shape[1:], shape[0]) if len(shape) == 3 else shape)), torch.zeros(2, dtype=torch.long)
        placeholder = Federation("site", rows, rows, [], self.about["labels"])
        with torch.random.fork_rng(devices=[]):  # the initial values are overwritten below
            module, _ = build_module(from_keywords({"model": given}), placeholder)
            module(images.network_input(rows[0]))  # lazy layers get their shapes
        module.load_state_dict(read_tensors(self.folder / name))
        return module.eval()

    def __repr__(self) -> str:
        return f"<site {self.about['site']} after round {self.about['round']} of {self.about['method']}>"
