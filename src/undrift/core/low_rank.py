"""Low-rank adapters (LoRA) in a network's layout: W + s·B·A, with W frozen, A of r rows and B of r columns.

Adapters are recognised by their names: `….lora_A.…` and `….lora_B.…`, as `peft` writes them. A layer that also has the
buffer `lora_merged` adds s·(B·A + lora_merged).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from undrift.core.vector import Entry, Layout

A, B, MERGED = ".lora_A.", ".lora_B.", ".lora_merged"


@dataclass(frozen=True)
class Adapter:
    """The entries of one adapted layer. Those of a convolution are matrices as well: rows are units."""

    layer: str
    A: Entry  # (r, inputs)
    B: Entry  # (outputs, r)
    merged: Entry | None  # (outputs, inputs)

    @property
    def rank(self) -> int:
        return self.A.shape[0]

    @property
    def trained(self) -> bool:
        return self.A.kind == self.B.kind == "parameter"

    def matrices(self, vector: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(A, B) of a vector, as matrices in float64."""
        return (
            vector[self.A.place].view(self.rank, -1).double(),
            vector[self.B.place].view(-1, self.rank).double(),
        )

    def put(self, vector: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        """Write A and B into a vector."""
        vector[self.A.place] = a.reshape(-1).to(vector.dtype)
        vector[self.B.place] = b.reshape(-1).to(vector.dtype)

    @property
    def inputs(self) -> int:
        return math.prod(self.A.shape[1:])


def adapters(layout: Layout) -> list[Adapter]:
    """All adapters of a layout, in its order."""
    entries = {entry.name: entry for entry in (*layout.entries, *layout.frozen)}
    found = []
    for name, entry in entries.items():
        other = entries.get(name.replace(A, B))
        if A in name and other is not None:
            layer = name.partition(A)[0]
            found.append(Adapter(layer, entry, other, entries.get(layer + MERGED)))
    return found


def is_adapted(layout: Layout) -> bool:
    return bool(adapters(layout))


def truncated(adapter: Adapter, vector: torch.Tensor, rank: int) -> None:
    """Set what lies beyond a rank to zero, in place. Both factors are zero there, so both gradients are, too."""
    vector[adapter.A.place].view(adapter.rank, -1)[rank:] = 0.0
    vector[adapter.B.place].view(-1, adapter.rank)[:, rank:] = 0.0


def factored(left: torch.Tensor, right: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(A, B) of a rank whose product B·A is nearest to left·right: its singular value decomposition, cut off. The rows of A
    are orthonormal and B has the singular values. Only factors are decomposed, never the whole product."""
    q_left, r_left = torch.linalg.qr(left)
    q_right, r_right = torch.linalg.qr(right.T)
    u, s, vt = torch.linalg.svd(r_left @ r_right.T)
    kept = min(rank, len(s))
    b, a = q_left @ (u[:, :kept] * s[:kept]), vt[:kept] @ q_right.T
    if kept < rank:
        a = torch.cat([a, a.new_zeros(rank - kept, a.shape[1])])
        b = torch.cat([b, b.new_zeros(b.shape[0], rank - kept)], 1)
    return a, b
