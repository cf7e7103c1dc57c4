"""Top-k: only the largest entries of an update travel, and what stays behind is added to the next one.

Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018.

    total = u + r,   send the k largest |total_i| (k = share · entries),   r ← total − sent

Error feedback loses nothing: sent + r = u + r_old, entry by entry. An index travels as four bytes beside its value, so from
a share of a half on all entries travel as they are. Rules that take the middle value of every coordinate see zeros where
nothing was sent, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

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
        shared = len(total) if job.plan.private is None else int((~job.plan.private).sum())
        k = self.kept(shared)
        sent = torch.zeros_like(total)
        largest = total.abs().topk(k).indices
        sent[largest] = total[largest]
        return total - sent, sent, messages

    # ---- the wire --------------------------------------------------------------------------------------------

    def sparse(self, size: int) -> bool:
        return 2 * self.kept(size) < size

    def pack(self, values: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        if not self.sparse(len(values)):
            return {}, values
        index = values.abs().topk(self.kept(len(values))).indices.sort().values  # zeros too, where fewer are left
        return {"index": index.int()}, values[index]

    def unpack(self, arrays: dict[str, torch.Tensor], values: torch.Tensor, size: int) -> torch.Tensor:
        if not self.sparse(size):
            if len(values) != size:
                raise Malformed(f"the update has {len(values)} entries instead of {size}")
            return values
        index = arrays.get("index", torch.empty(0, dtype=torch.int32)).long()
        if not len(index) == len(values) == self.kept(size):
            raise Malformed(
                f"topk has {len(index)} places for {len(values)} values instead of {self.kept(size)} for both"
            )
        if len(index) and not (int(index[0]) >= 0 and int(index[-1]) < size and bool((index.diff() > 0).all())):
            raise Malformed("topk's places do not ascend within the vector")
        out = torch.zeros(size)
        out[index] = values
        return out

    def packed(self, size: int) -> tuple[dict[str, tuple[torch.dtype, int]], int]:
        if not self.sparse(size):
            return {}, size
        return {"index": (torch.int32, self.kept(size))}, self.kept(size)
