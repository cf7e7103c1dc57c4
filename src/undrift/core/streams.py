"""Random streams keyed by what they are for.

Every random draw of a run is a function of (seed, purpose, round, client) and of nothing else: not of the order in
which clients run, the number of workers, the method, or what was drawn before. So two methods see the same cohorts,
the same initial model and the same partition, and a resumed run draws what an undisturbed one would have drawn.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def key(seed: int, purpose: str, *where: int) -> int:
    """A 63-bit number that stands for (seed, purpose, round, client, …)."""
    text = "/".join([str(int(seed)), purpose, *(str(int(part)) for part in where)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def torch_stream(seed: int, purpose: str, *where: int) -> torch.Generator:
    """For everything that happens to tensors: batch order, masks, a part's own draws. Always on the CPU."""
    return torch.Generator().manual_seed(key(seed, purpose, *where))


def numpy_stream(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """For everything that happens before there are tensors: partition, noise, selection."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *where)))
