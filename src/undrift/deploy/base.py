"""The frozen parameters of a deployment. The handshake names them by their hash. A site whose own network has other
values asks for them, gets them once, and keeps them in the run's folder."""

from __future__ import annotations

import math

import safetensors.torch
import torch

from undrift.core.frozen import digest_of
from undrift.core.vector import Layout
from undrift.deploy.policy import Refused
from undrift.deploy.site_store import SiteStore
from undrift.experiment.setup import Setup
from undrift.store.durable import write_file


class BaseMissing(Refused):
    """The site needs the base: the server sends the handshake again, with it."""

    def __init__(self, site: str) -> None:
        super().__init__("base", f"{site}'s frozen parameters are not the deployment's; the server is asked for them")


def base_bytes(setup: Setup) -> torch.Tensor:
    """All frozen parameters as one array of bytes, in the order of the layout."""
    tensors = setup.runtime.model.frozen.tensors().values()
    return torch.cat([tensor.cpu().reshape(-1).view(torch.uint8) for tensor in tensors])


def base_size(layout: Layout) -> int:
    return sum(math.prod(entry.shape) * getattr(torch, entry.dtype).itemsize for entry in layout.frozen)


def cut(layout: Layout, data: torch.Tensor) -> dict[str, torch.Tensor]:
    """`base_bytes` as tensors again."""
    tensors, at = {}, 0
    for entry in layout.frozen:
        dtype = getattr(torch, entry.dtype)
        size = math.prod(entry.shape) * dtype.itemsize
        tensors[entry.name] = data[at : at + size].clone().view(dtype).view(entry.shape)
        at += size
    return tensors


def use_base(setup: Setup, site: str, store: SiteStore, digest: str, sent: torch.Tensor | None = None) -> None:
    """Let the site's network have the deployment's frozen parameters: its own ones, those in its folder, or `sent`."""
    frozen = setup.runtime.model.frozen
    if frozen.digest == digest:
        return
    path = store.folder / "base.safetensors"
    if sent is not None:
        tensors = cut(setup.plan.layout, sent)
        if digest_of(tensors) != digest:
            raise Refused("base", f"the base that {site} received has another SHA-256 than the server's")
        write_file(path, safetensors.torch.save(tensors))
    elif not path.exists():
        raise BaseMissing(site)
    else:
        try:
            tensors = safetensors.torch.load_file(path)
            found = digest_of(tensors)
        except Exception:
            tensors, found = {}, "unreadable"
        if found != digest:
            raise Refused(
                "base",
                f"{path} has SHA-256 {found[:16]}…, the deployment's base {digest[:16]}…; remove the file, and the "
                "server sends it again",
            )
    frozen.take(tensors, digest)
