"""A site's folder for one run: its states, its models, and the log of what left it.

    initial.safetensors        Θ⁰ as the server sent it in the handshake
    states/00000003.safetensors  one file per version of the client's state, named by the round that wrote it
    states/00000003.safetensors.sha256  its SHA-256, checked when it is read
    states/00000003.before.safetensors  what it was before the server had the round done again
    left.jsonl                 every envelope that left, by name and bytes: the handshake, replies and refusals
    notes.jsonl                the parts' notes; they never leave
    model.safetensors, personal.safetensors, site.toml   written at every evaluation of L1, the last one included

Flower's own node context lives in memory and ends with the process. This folder survives it. The server decides which
version counts (`state_round`), and only versions below `keep_round` are deleted. A server that was rolled back has rounds
done again. Whether it was, a site cannot tell, so the first version of a round stays beside the one that replaces it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
import torch

from undrift.contract.context import Tree
from undrift.core import system
from undrift.core.files import read_lines
from undrift.core.vector import Integers
from undrift.deploy.envelope import Envelope
from undrift.deploy.policy import Refused
from undrift.experiment.setup import Setup
from undrift.store import trees
from undrift.store.durable import make_folder, write_file
from undrift.store.weights import weights_file


class StateLost(Exception):
    """The state version that the server asks for is not on this site's disk."""


class SiteStore:
    def __init__(self, folder: Path, run: str) -> None:
        if not run.isalnum():
            raise Refused("order", f"a run's name must be letters and digits, not {run!r}")
        self.folder = folder / run

    def create(self) -> SiteStore:
        try:
            make_folder(self.folder, mode=0o700)  # models reveal something about the data
            make_folder(self.folder / "states")
        except OSError as error:
            raise Refused(
                "folder", f"the site's folder {self.folder} is not writable: {error.strerror or error}"
            ) from None
        return self

    @property
    def knows_run(self) -> bool:
        """Whether the handshake of this run has taken place here."""
        return (self.folder / "initial.safetensors").exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Handle one envelope at a time."""
        file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            system.lock(file, wait=True)
            yield
        finally:
            os.close(file)

    # ---- Θ⁰ and states ---------------------------------------------------------------------------------------

    def save_initial(self, session: int, initial: torch.Tensor, integers: Integers, base: str) -> None:
        """After the handshake: Θ⁰, the hash of the frozen parameters, and how often the server has been started."""
        tree: Tree = {"session": session, "initial": initial, "integers": integers, "base": base}
        write_file(self.folder / "initial.safetensors", trees.dump(tree))

    def load_initial(self) -> tuple[int, torch.Tensor, Integers, str]:
        tree = trees.load((self.folder / "initial.safetensors").read_bytes())
        return tree["session"], tree["initial"], tree["integers"], tree.get("base", "")

    def state_path(self, version: int) -> Path:
        return self.folder / "states" / f"{version:08d}.safetensors"

    def load_state(self, version: int | None) -> Tree:
        if version is None:
            return None
        path = self.state_path(version)
        try:
            data, noted = path.read_bytes(), hash_path(path).read_text().split()
            if noted[:1] != [hashlib.sha256(data).hexdigest()]:
                raise StateLost(f"{path} is damaged: its SHA-256 is not the one beside it; restore the site's folder")
            return trees.load(data)
        except StateLost:
            raise
        except Exception as error:
            raise StateLost(
                f"the state of round {version} in {path} cannot be read ({type(error).__name__}); restore the site's folder"
            ) from None

    def save_state(self, version: int, state: Tree, keep_round: int | None) -> None:
        """Written before the reply leaves, so that the state of every reply exists on disk."""
        path, data = self.state_path(version), trees.dump(state)
        first = path.with_suffix(".before.safetensors")
        if path.exists() and not first.exists() and path.read_bytes() != data:
            write_file(first, path.read_bytes())
        write_file(path, data)
        write_file(hash_path(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())
        for path in (self.folder / "states").glob("*.safetensors"):
            number = path.name.partition(".")[0]
            if keep_round is not None and number.isdigit() and int(number) < keep_round:
                hash_path(path).unlink(missing_ok=True)
                path.unlink()

    # ---- logs ------------------------------------------------------------------------------------------------

    def log_sent(
        self, envelope: Envelope, round: int | None = None, works: Sequence[str] = (), why: str | None = None
    ) -> None:
        """Called before the envelope leaves."""
        log_sent(self.folder, envelope, round, works, why)

    def log_notes(self, round: int, notes: Sequence[tuple[str, str, str]]) -> None:
        for part, name, value in notes:
            entry = {"round": round, "part": part, "name": name, "value": json.loads(value)}
            append_entry(self.folder / "notes.jsonl", entry)

    # ---- models ----------------------------------------------------------------------------------------------

    def save_models(
        self,
        setup: Setup,
        site: str,
        round: int,
        evaluated: torch.Tensor,
        integers: Integers,
        mixture: Sequence[tuple[Any, torch.Tensor]],
    ) -> None:
        """The global model (only shared entries if some are private) and the site's personal model, as state dicts."""
        private = setup.method.private_names(setup.plan.layout)
        tensors = setup.runtime.model.state_dict(evaluated, integers)
        self._save_model("model.safetensors", setup, {k: v for k, v in tensors.items() if k not in private})
        for path in self.folder.glob("personal*.safetensors"):
            path.unlink()
        names = [f"personal-{i}.safetensors" for i in range(len(mixture))]
        if len(mixture) == 1:
            names = ["personal.safetensors"]
        for name, (_, vector) in zip(names, mixture, strict=True):
            self._save_model(name, setup, setup.runtime.model.state_dict(vector, integers))
        personal = [{"file": name, "weight": float(weight)} for name, (weight, _) in zip(names, mixture, strict=True)]
        table = {
            "site": site,
            "model": setup.model_name,
            **({} if setup.options.adapt is None else {"adapt": setup.options.adapt}),
            "method": setup.method.name,
            "round": round,
            "seed": setup.options.seed,
            "shape": list(setup.federation.shape),
            "labels": list(setup.federation.labels),
            **({"task": str(setup.options.task)} if isinstance(setup.options.task, str) else {}),
            "private": sorted(private),
            "personal": personal,
        }
        write_file(self.folder / "site.toml", tomli_w.dumps(table).encode())

    def _save_model(self, name: str, setup: Setup, tensors: dict[str, torch.Tensor]) -> None:
        write_file(self.folder / name, weights_file(tensors, {"model": setup.model_name, "format": "pt"}))


def hash_path(path: Path) -> Path:
    """The file beside a state that holds its SHA-256, as `sha256sum -c` reads it."""
    return path.with_name(path.name + ".sha256")


def log_sent(
    folder: Path, envelope: Envelope, round: int | None = None, works: Sequence[str] = (), why: str | None = None
) -> None:
    """One line in left.jsonl: what leaves, by name and bytes. `why` is local: the reason of a refusal."""
    sizes = envelope.sizes()
    entry = {"kind": envelope.head["kind"], "round": round, "bytes": sum(sizes.values()), "what": sizes}
    more = {"works": list(works), "code": envelope.head.get("code"), "why": why}
    append_entry(folder / "left.jsonl", {**entry, **{name: value for name, value in more.items() if value}})


def log_refusal(folder: Path, run: str, envelope: Envelope, why: str) -> None:
    """A refusal leaves, too. It is logged in the run's folder, or above it if the run has no usable name."""
    folder = folder / run if run.isalnum() else folder
    make_folder(folder, mode=0o700)
    log_sent(folder, envelope, why=why)


def append_entry(path: Path, entry: Mapping[str, Any]) -> None:
    with open(path, "a") as file:
        file.write(json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **entry}) + "\n")


def training_replies(folder: Path) -> int:
    """How many training replies have left a site's folder, in all runs."""
    entries = (entry for log in folder.glob("*/left.jsonl") for entry in read_lines(log))
    return sum(isinstance(entry, dict) and "train" in entry.get("works", ()) for entry in entries)
