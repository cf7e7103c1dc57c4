"""Quantisation: entries travel as small whole numbers, rounded at random so that their mean is right.

Alistarh et al.: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS 2017.

    s = 2^e, the smallest with max|total| ≤ L s,   L = 2^(bits−1) − 1        total = u + r_old
    level_i = ⌊total_i/s + U(0,1)⌋,   sent = level · s,   r ← total − sent

E[sent] = total, and the residual r is added to the next update: only where that update is not zero, so that what topk left
behind stays behind. The step s is a power of two, where QSGD has max|u|/L. This costs up to one bit of resolution, and
every product is exact in float32, so what is unpacked has the same bits. 32 bits change nothing.
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
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class Quantize(Upload):
    bits: Annotated[int, Range(least=2, most=32)] = 8

    def validate(self) -> None:
        if 16 < self.bits < 32:
            raise BadRequest(f"quantize: bits must be between 2 and 16, or 32 for none, not {self.bits}")

    @property
    def most(self) -> int:
        """L, the largest level."""
        return (1 << (self.bits - 1)) - 1

    def check(self, plan: Plan) -> Iterable[Problem]:
        parts = plan.method.on("upload")
        if any(part.fixes_weights for part in parts[parts.index(self) :]):
            yield Problem(
                "error", "quantize rounds to a grid, and dp's clipping would move values off it; use topk with dp"
            )
        if any(part is not self for part in parts[parts.index(self) :]):
            yield Problem(
                "error", "quantize must be the last upload part: what follows it would move values off its grid"
            )

    def upload(
        self, job: Job, scratch: None, residual: Tree, update: torch.Tensor, messages: dict[str, Message]
    ) -> tuple[Tree, torch.Tensor, dict[str, Message]]:
        if self.bits == 32:
            return residual, update, messages
        before = torch.zeros_like(update) if residual is None else torch.as_tensor(residual)
        travels = update != 0
        total = torch.where(travels, update + before, 0.0)
        step = self.step(total)
        draws = torch.rand(len(total), generator=job.stream("rounding"), dtype=torch.float64)
        levels = torch.floor(total.double() / step + draws).clamp(-self.most, self.most)
        sent = torch.where(travels, (levels * step).float(), 0.0)
        return torch.where(travels, total - sent, before), sent, messages

    def step(self, values: torch.Tensor) -> float:
        """s. A vector of zeros has the step 1."""
        largest = float(values.abs().max()) if len(values) else 0.0
        if not (0 < largest < math.inf):
            return 1.0
        exponent = max(-120, math.ceil(math.log2(largest / self.most)))
        return 2.0 ** (exponent + (largest > 2.0**exponent * self.most))  # the logarithm rounds

    # ---- the wire --------------------------------------------------------------------------------------------

    def pack(self, values: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        if self.bits == 32 or not len(values):
            return {}, values
        step = self.step(values)
        levels = (values.double() / step).round().long()
        exponent = torch.tensor([round(math.log2(step))], dtype=torch.int16)
        return {"step": exponent, "levels": squeeze(levels, self.bits)}, values[:0]

    def unpack(self, arrays: dict[str, torch.Tensor], values: torch.Tensor, size: int) -> torch.Tensor:
        if self.bits == 32 or not size:
            if len(values) != size:
                raise Malformed(f"the update has {len(values)} entries instead of {size}")
            return values
        expected, _ = self.packed(size)
        for name, (dtype, length) in expected.items():
            if name not in arrays or arrays[name].dtype != dtype or tuple(arrays[name].shape) != (length,):
                raise Malformed(f"quantize's {name} is not an array of {length} numbers of type {str(dtype)[6:]}")
        levels, step = stretch(arrays["levels"], self.bits, size), arrays["step"]
        if int(levels.abs().max()) > self.most or int(step.abs().max()) > 127:
            raise Malformed("quantize's levels or steps are out of range")
        return (levels * 2.0 ** int(step)).float()

    def packed(self, size: int) -> tuple[dict[str, tuple[torch.dtype, int]], int]:
        if self.bits == 32 or not size:
            return {}, size
        levels = (torch.uint8, math.ceil(size * self.bits / 8)) if self.bits <= 8 else (torch.int16, size)
        return {"step": (torch.int16, 1), "levels": levels}, 0


def squeeze(levels: torch.Tensor, bits: int) -> torch.Tensor:
    """Levels in as few bytes as they need: `bits` bits each, up to eight of them."""
    if bits > 8:
        return levels.to(torch.int16)
    shifted = (levels + 2 ** (bits - 1)).numpy().astype(np.uint8)
    return torch.from_numpy(np.packbits(np.unpackbits(shifted[:, None], axis=1)[:, 8 - bits :]))


def stretch(packed: torch.Tensor, bits: int, size: int) -> torch.Tensor:
    """The levels again."""
    if bits > 8:
        return packed.long()
    flags = np.unpackbits(packed.numpy())[: size * bits].reshape(size, bits)
    shifted = np.packbits(np.pad(flags, ((0, 0), (8 - bits, 0))), axis=1)[:, 0]
    levels: torch.Tensor = torch.from_numpy(shifted.astype(np.int64)) - (1 << (bits - 1))
    return levels
