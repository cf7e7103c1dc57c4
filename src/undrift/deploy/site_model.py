"""Opens the models in a site's folder, without Flower and without the server: `ud.load(FOLDER)`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge, MinLen
from torch import nn

from undrift import tasks
from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.core.schema import Count, Name, Seed, check, setting
from undrift.deploy.spec import example_of
from undrift.experiment.adapting import adapted, read_tensors
from undrift.experiment.foreign_code import foreign_code, refusal, untrusted
from undrift.experiment.network import build_module
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Mixture
from undrift.federation import images
from undrift.federation.federation import Federation
from undrift.store.own_files import refuse_links


@dataclass(frozen=True)
class PersonalFile:
    """An entry of `personal`: a model of the site's mixture."""

    file: Name = setting(..., "file of the model, in the same folder")
    weight: float = setting(..., "its weight in the mixture")


@dataclass(frozen=True)
class SiteFile:
    """The keys of site.toml."""

    site: Name = setting(..., "the site's name")
    model: Name = setting(..., "the network, as in run.toml")
    method: str = setting(..., "the method's label")
    round: Annotated[int, Ge(0)] = setting(..., "rounds before this evaluation")
    seed: Seed = setting(..., "seed of the run")
    shape: Annotated[list[Count], MinLen(1)] = setting(..., "shape of one sample, channels first")
    labels: Annotated[list[str], MinLen(1)] = setting(..., "names of the classes, or of the other outputs")
    private: list[str] = setting(..., "entries of the network that never left the site")
    personal: Annotated[list[dict[str, Any]], MinLen(1)] = setting(
        ..., "the personal model: `file` and `weight` of each member"
    )
    adapt: str | None = setting(None, "its adapters, as in run.toml")
    task: Name | None = setting(None, "what the network predicts; without the key: classes")


class SiteModel:
    """`.model` is the global model, `.personal()` the site's personal model, both as plain modules in eval mode."""

    def __init__(self, folder: Path, model: Any = None, trust: bool = False) -> None:
        refuse_links(folder)
        self.folder, self.given, self.trust = folder, model, trust
        path = folder / "site.toml"
        try:
            self.about: dict[str, Any] = check(SiteFile, read_toml(path), str(path))
        except BadRequest as error:
            raise BadRequest(f"{error}; the next evaluation at the site writes it again") from None

    @property
    def model(self) -> nn.Module:
        if self.about["private"]:
            raise BadRequest("with private entries no global model exists; use .personal() for the site's own model")
        return self._module("model.safetensors")

    def personal(self) -> nn.Module:
        where = f"{self.folder / 'site.toml'}: personal"
        entries = [check(PersonalFile, entry, where) for entry in self.about["personal"]]
        modules = [self._module(entry["file"]) for entry in entries]
        return modules[0] if len(modules) == 1 else Mixture(modules, [entry["weight"] for entry in entries])

    def _module(self, name: str) -> nn.Module:
        given = self.about["model"] if self.given is None else self.given
        if self.given is None and (
            names := untrusted(foreign_code({"model": given, "task": self.about.get("task")}), self.trust)
        ):
            raise refusal(self.folder, names, "give it with model=…, or trust it: ud.load(FOLDER, trust=True)")
        task = tasks.read(self.about.get("task")).with_outputs(len(self.about["labels"]))
        rows = example_of(task, tuple(self.about["shape"]))
        placeholder = Federation("site", rows, rows, [], self.about["labels"], task=task)
        with torch.random.fork_rng(devices=[]):  # the initial values are overwritten below
            options = from_keywords({"model": given, "adapt": self.about.get("adapt")})
            module, _ = adapted(build_module(options, placeholder)[0], options, placeholder)
            module(images.network_input(rows[0]))  # lazy layers get their shapes
        try:
            module.load_state_dict(read_tensors(self.folder / name))
        except RuntimeError as error:
            path = self.folder / "site.toml"
            said = " ".join(str(error).split())[:120]
            raise BadRequest(
                f"{self.folder / name} does not fit the model in {path}; restore both files ({said})"
            ) from None
        return module.eval()

    def __repr__(self) -> str:
        return f"<site {self.about['site']} after round {self.about['round']} of {self.about['method']}>"
