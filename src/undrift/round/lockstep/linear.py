"""A linear layer of all clients of a stack at once.

Inside, outputs come before samples: [clients, outputs, rows]. MKL's products of small layers then take half the time, and a
softmax over the classes runs along memory instead of across it.

The trap: MKL's products round differently for matrices at differently aligned addresses, and torch's vectorised loops
handle the last elements of a tensor another way than the others. So the rows of a batch, and the rows of a weight's
gradient, are filled up until every client's share of every tensor is a multiple of `ALIGN` elements: then each client's
memory is aligned alike, wherever it lies in the stack, and no client owns a remainder.
"""

from __future__ import annotations

import math
from typing import Any

import torch

ALIGN = 32  # elements: 128 bytes, two registers of the widest vectors there are


def rounded(count: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-count // ALIGN) * ALIGN


def outputs(x: torch.Tensor, W: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """[c, out, rows] from x [c, in, rows], W [c, out, in] and b [c, out, 1]."""
    return torch.bmm(W, x) if b is None else torch.baddbmm(b, W, x)


def padded_outputs(out: int, inputs: int) -> int:
    """How many outputs a layer is given, so that every client's [out, in] is a multiple of `ALIGN`."""
    step = ALIGN // math.gcd(ALIGN, inputs)
    return -(-out // step) * step


def weight_gradient(
    g: torch.Tensor, x: torch.Tensor, samples: int | None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """[c, out, in] from g [c, out, rows] and x [c, in, rows], of which the first `samples` rows count. Outputs without a
    gradient are added until every client's product is aligned like the others; `out` has a place for them."""
    outputs, more = g.size(1), padded_outputs(g.size(1), x.size(1)) - g.size(1)
    if more:
        g = torch.constant_pad_nd(g, (0, 0, 0, more))
    if samples is not None and samples < g.size(2):
        g, x = g[:, :, :samples], x[:, :, :samples]
    if out is not None:
        return torch.bmm(g, x.transpose(1, 2), out=out)
    found = torch.bmm(g, x.transpose(1, 2))
    return found[:, :outputs] if more else found


class StackedLinear(torch.autograd.Function):
    """x [c, rows, in], W [c, out, in], b [c, out] -> [c, rows, out]. Written out, because autograd would give the
    gradient of W transposed, and its copy costs more than the product."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, W: torch.Tensor, b: torch.Tensor | None, samples: int | None
    ) -> torch.Tensor:
        ctx.save_for_backward(x, W)
        ctx.biased, ctx.samples = b is not None, samples
        return outputs(x.transpose(1, 2), W, None if b is None else b.unsqueeze(2)).transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        g = grads[0].transpose(1, 2).contiguous()
        x, W = ctx.saved_tensors
        along_x = torch.bmm(W.transpose(1, 2), g).transpose(1, 2) if ctx.needs_input_grad[0] else None
        along_W = weight_gradient(g, x.transpose(1, 2), ctx.samples)
        return along_x, along_W, g.sum(2) if ctx.biased else None, None
