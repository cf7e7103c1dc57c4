"""Top-k: only the largest entries of an update travel, and what stays behind is added to the next one.

Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.

    total = u + r,   send the k largest |total_i| (k = share · entries),   r ← total − sent

Error feedback loses nothing: sent + r = u + r_old, entry by entry. The places travel as one bit per entry, or as four bytes
for each that is sent where that is less: `topk(0.1)` is an eighth of the update's bytes. Rules that take the middle value of
every coordinate see zeros where nothing was sent, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

from undrift.contract.context import Message, Tree
from undrift.contract.declare import Malformed
from undrift.contract.parts import Job, Plan, Problem, Range, Upload


@dataclass(frozen=True)
class TopK(Upload):
    share: Annotated[float, Range(above=0, most=1)] = 0.1

    def kept(self, size: int) -> int:
        return min(size, max(1, math.ceil(self.share * size)))

    def check(self, plan: Plan) -> Iterable[Problem]:
        combine = plan.method.one("combine")
        if not combine.linear:
            yield Problem("error", f"topk sends zeros where an entry stays behind, and {combine.name} compares entries across "
                                   "clients; use topk with a mean")  # fmt: skip

    def upload(
        self, job: Job, scratch: None, residual: Tree, update: torch.Tensor, messages: dict[str, Message]
    ) -> tuple[Tree, torch.Tensor, dict[str, Message]]:
        total = update if residual is None else update + torch.as_tensor(residual)
        shared = len(total) if job.plan.unsent is None else int((~job.plan.unsent).sum())
        k = self.kept(shared)
        sent = torch.zeros_like(total)
        largest = total.abs().topk(k).indices
        sent[largest] = total[largest]
        return total - sent, sent, messages

    # ---- the wire --------------------------------------------------------------------------------------------

    def places(self, size: int) -> dict[str, tuple[torch.dtype, int]]:
        """How the places of the sent entries travel: a bit for every entry, or four bytes for each that is sent. Nothing
        where all entries as they are would take no more."""
        k = self.kept(size)
        bits, index = (torch.uint8, -(-size // 8)), (torch.int32, k)
        name, (dtype, length) = ("index", index) if 4 * k <= bits[1] else ("bits", bits)
        return {name: (dtype, length)} if dtype.itemsize * length + 4 * k < 4 * size else {}

    def pack(self, values: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        places = self.places(len(values))
        if not places:
            return {}, values
        index = values.abs().topk(self.kept(len(values))).indices.sort().values  # zeros too, where fewer are left
        if "index" in places:
            return {"index": index.int()}, values[index]
        sent = np.zeros(len(values), dtype=bool)
        sent[index.numpy()] = True
        return {"bits": torch.from_numpy(np.packbits(sent))}, values[index]

    def unpack(self, arrays: dict[str, torch.Tensor], values: torch.Tensor, size: int) -> torch.Tensor:
        places = self.places(size)
        if not places:
            if len(values) != size:
                raise Malformed(f"the update has {len(values)} entries instead of {size}")
            return values
        ((name, (dtype, length)),) = places.items()
        array = arrays.get(name, torch.empty(0, dtype=dtype))
        if (array.dtype, len(array)) != (dtype, length):
            raise Malformed(f"topk has {len(array)} numbers for its places instead of {length}")
        if name == "index":
            index = array.long()
            if len(index) and not (int(index[0]) >= 0 and int(index[-1]) < size and bool((index.diff() > 0).all())):
                raise Malformed("topk's places do not ascend within the vector")
        else:
            index = torch.from_numpy(np.flatnonzero(np.unpackbits(array.numpy())))
            if len(index) and int(index[-1]) >= size:
                raise Malformed("topk's places do not lie within the vector")
        if not len(index) == len(values) == self.kept(size):
            raise Malformed(
                f"topk has {len(index)} places for {len(values)} values instead of {self.kept(size)} for both"
            )
        out = torch.zeros(size)
        out[index] = values
        return out

    def packed(self, size: int) -> tuple[dict[str, tuple[torch.dtype, int]], int]:
        places = self.places(size)
        return places, self.kept(size) if places else size
