"""Random streams keyed by what they are for.

Every random draw of a run is a function of (seed, purpose, round, client) and of nothing else: not of the order in
which clients run, the number of workers, the method, or what was drawn before. So two methods see the same cohorts,
the same initial model and the same partition, and a resumed run draws what an undisturbed one would have drawn.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence


@lru_cache(maxsize=1 << 12)  # a client's draws are begun anew several times a round
def key(seed: int, purpose: str, *where: int) -> int:
    """A 63-bit number that stands for (seed, purpose, round, client, …)."""
    text = "/".join([str(int(seed)), purpose, *(str(int(part)) for part in where)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def torch_stream(seed: int, purpose: str, *where: int) -> torch.Generator:
    """For everything that happens to tensors: batch order, masks, a part's own draws. Always on the CPU."""
    return torch.Generator().manual_seed(key(seed, purpose, *where))


def numpy_stream(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """For everything that happens before there are tensors: partition, noise, selection. It is `Philox(key=…)`, which would
    also draw from the operating system's entropy and throw it away."""
    seeds: Any = PhiloxKey(key(seed, purpose, *where))  # numpy's types do not know that it takes these
    return np.random.Generator(np.random.Philox(seeds))


class PhiloxKey(ISeedSequence):
    """A seed sequence that returns this key."""

    def __init__(self, value: int) -> None:
        self.value = value

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        """Philox wants two words."""
        return np.array([self.value, 0], np.uint64)


def system_normal(size: int) -> torch.Tensor:
    """Standard normal draws made of the operating system's random bytes (Box and Muller). Nobody can draw them again."""
    pairs = (size + 1) // 2
    bits = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs) >> np.uint64(11)
    first, second = (bits + np.array([[1.0], [0.0]])) * 2.0**-53  # the first in (0, 1], so that its logarithm is finite
    radius = np.sqrt(-2.0 * np.log(first))
    both = np.concatenate([radius * np.cos(2 * np.pi * second), radius * np.sin(2 * np.pi * second)])
    return torch.from_numpy(both[:size])


def system_stream() -> np.random.Generator:
    """A generator that starts from the operating system's random bytes."""
    return np.random.default_rng(int.from_bytes(os.urandom(32), "little"))
