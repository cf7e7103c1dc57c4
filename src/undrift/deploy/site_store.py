"""A site's folder for one run: its states, its models, and the log of what left it.

    initial.safetensors        Θ⁰ as the server sent it at the roll call
    states/00000003.safetensors  one file per version of the client's state, named by the round that wrote it
    left.jsonl                 every parcel that left, by name and bytes
    notes.jsonl                what the parts noted; it never leaves
    model.safetensors, personal.safetensors, site.toml   at the end (and whenever the site was judged)

Flower's own node context lives in memory and dies with the process; this survives it. A version is never changed; which
one counts is the server's decision (`state_round`), and only versions below `keep_round` are deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import tomli_w
import torch

from undrift.contract.context import Tree
from undrift.core.errors import BadRequest
from undrift.core.vector import Integers
from undrift.deploy.envelope import Envelope
from undrift.experiment.setup import Setup
from undrift.store import trees
from undrift.store.run_store import written


class Lost(Exception):
    """The state that the server asks for is not on this site's disk."""


class SiteStore:
    def __init__(self, folder: Path, run: str) -> None:
        if not run.isalnum():
            raise BadRequest(f"a run is named by letters and digits, not {run!r}")
        self.folder = folder / run

    def make(self) -> SiteStore:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # models say something about the data
            (self.folder / "states").mkdir(exist_ok=True)
        except OSError as error:
            raise BadRequest(f"the site's folder {self.folder} cannot be written: {error.strerror or error}") from None
        return self

    @property
    def known(self) -> bool:
        return (self.folder / "initial.safetensors").exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One parcel at a time."""
        file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    # ---- what lasts between two parcels ----------------------------------------------------------------------

    def begin(self, session: int, initial: torch.Tensor, integers: Integers) -> None:
        """After the roll call: Θ⁰, and the number of times the server has been started on this run."""
        tree: Tree = {"session": session, "initial": initial, "integers": integers}
        written(self.folder / "initial.safetensors", trees.dump(tree))

    def facts(self) -> tuple[int, torch.Tensor, Integers]:
        tree = trees.load((self.folder / "initial.safetensors").read_bytes())
        return tree["session"], tree["initial"], tree["integers"]

    def place(self, version: int) -> Path:
        return self.folder / "states" / f"{version:08d}.safetensors"

    def state(self, version: int | None) -> Tree:
        if version is None:
            return None
        try:
            return trees.load(self.place(version).read_bytes())
        except Exception as error:
            raise Lost(
                f"its state of round {version} cannot be read ({type(error).__name__}); put its folder back"
            ) from None

    def keep(self, version: int, state: Tree, keep_round: int | None) -> None:
        """On disk before the answer leaves, so that an answer always stands for a state that exists."""
        written(self.place(version), trees.dump(state))
        for path in (self.folder / "states").glob("*.safetensors"):
            if keep_round is not None and int(path.stem) < keep_round:
                path.unlink()

    # ---- logs ------------------------------------------------------------------------------------------------

    def left(self, envelope: Envelope, round: int | None) -> None:
        sizes = envelope.sizes()
        self._line(
            "left.jsonl", {"kind": envelope.head["kind"], "round": round, "bytes": sum(sizes.values()), "what": sizes}
        )

    def note(self, round: int, notes: Sequence[tuple[str, str, str]]) -> None:
        for part, name, value in notes:
            self._line("notes.jsonl", {"round": round, "part": part, "name": name, "value": json.loads(value)})

    def _line(self, name: str, words: Mapping[str, Any]) -> None:
        with open(self.folder / name, "a") as file:
            file.write(json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **words}) + "\n")

    # ---- models ----------------------------------------------------------------------------------------------

    def models(
        self, setup: Setup, site: str, round: int, evaluated: torch.Tensor, integers: Integers, mixture: Sequence[tuple[Any, torch.Tensor]]
    ) -> None:  # fmt: skip
        """The global model (its shared entries, where some are private) and what this site holds, as state dicts."""
        private = setup.method.private_names(setup.plan.layout)
        whole = setup.runtime.model.state_dict(evaluated, integers)
        self._model("model.safetensors", setup, {k: v for k, v in whole.items() if k not in private})
        for path in self.folder.glob("personal*.safetensors"):
            path.unlink()
        names = (
            ["personal.safetensors"]
            if len(mixture) == 1
            else [f"personal-{i}.safetensors" for i in range(len(mixture))]
        )
        for name, (_, vector) in zip(names, mixture, strict=True):
            self._model(name, setup, setup.runtime.model.state_dict(vector, integers))
        table = {
            "site": site, "model": setup.model_name, "method": setup.method.name, "round": round, "seed": setup.options.seed,
            "shape": list(setup.federation.shape), "labels": list(setup.federation.labels), "private": sorted(private),
            "personal": [{"file": name, "weight": float(weight)} for name, (weight, _) in zip(names, mixture, strict=True)],
        }  # fmt: skip
        written(self.folder / "site.toml", tomli_w.dumps(table).encode())

    def _model(self, name: str, setup: Setup, state: dict[str, torch.Tensor]) -> None:
        data = safetensors.torch.save(
            {key: value.clone() for key, value in state.items()}, metadata={"model": setup.model_name, "format": "pt"}
        )
        written(self.folder / name, data)
