"""What keeps bits the same: one thread, seeded generators, statistics that rest where they cannot be estimated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Torch has one default generator per process. Whoever seeds it holds this, so that runs in threads do not draw from each other's.
DEFAULT_GENERATOR = threading.RLock()


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """One thread, the default generator seeded (dropout draws from it), both put back afterwards."""
    with put_back():
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def put_back() -> Iterator[None]:
    """One thread, and afterwards the default generator as it was. Meanwhile no other run of this process draws from it."""
    with DEFAULT_GENERATOR:
        state = torch.get_rng_state()
        try:
            with one_thread():
                yield
        finally:
            torch.set_rng_state(state)


@contextmanager
def one_thread() -> Iterator[None]:
    """Two threads give other bits than one, and fight with the workers of other clients."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def drawing_from(state: torch.Tensor) -> Iterator[None]:
    """The default generator on a stream of its own, whose position is kept in `state`."""
    main = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        state.copy_(torch.get_rng_state())
        torch.set_rng_state(main)


def freeze_statistics(module: torch.nn.Module) -> None:
    for child in module.modules():
        if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
            child.eval()
