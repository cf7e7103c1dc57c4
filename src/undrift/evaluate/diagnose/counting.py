"""Work that PyTorch's own counter of floating-point operations does not see. Imported only when it is used."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from undrift.core.assign import assign  # noqa: F401 - makes torch.ops.undrift.assign
from undrift.evaluate.diagnose.base import ServerWork

RESERVE = (torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided)  # memory, and write nothing


class Written(TorchDispatchMode):
    """Counts the floating-point numbers that operations write, beside matrix products, convolutions and views. Products and
    convolutions are counted as PyTorch's own counter does, an assignment of n units as n³."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.products = self.assignments = 0

    @property
    def work(self) -> ServerWork:
        return ServerWork(self.numbers, self.products, self.assignments)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function.overloadpacket is torch.ops.undrift.assign:
            self.assignments += args[0].size(0) ** 3
        elif function.overloadpacket in flop_registry:
            self.products += flop_registry[function.overloadpacket](*args, **(kwargs or {}), out_val=found)
        elif not function.is_view and function.overloadpacket not in RESERVE:
            self.numbers += sum(
                one.numel()
                for one in tree_leaves(written_by(args, found))
                if isinstance(one, torch.Tensor) and one.is_floating_point()
            )
        return found


def written_by(args: Any, found: Any) -> Any:
    """What an operation returns; of one that returns nothing (fused kernels), its first argument, which it changes."""
    return args[:1] if found is None and args else found
