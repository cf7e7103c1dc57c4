"""A network that is no chain of known layers, for a stack of clients, through `torch.func.vmap`.

The trap: some kernels, those of convolutions for instance, round by the number of clients. A network with layers that are
not known to round alike is always given `AT_ONCE` clients at once, the last time filled up with copies of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from undrift.core.vector import Flat
from undrift.round.lockstep.leaves import Leaves, Unstackable

AT_ONCE = 4  # clients; a constant, because it changes bits


class Mapped:
    """The network's own `forward` for all clients. `together`: how many at once, None where any number rounds alike."""

    kind = "vmap"
    features: torch.Tensor | None = None

    def __init__(self, flat: Flat, head_places: tuple[int, int | None] | None, together: int | None) -> None:
        self.names = [entry.name for entry in flat.layout.entries if entry.kind == "parameter"]
        self.head_places, self.together = head_places, together
        module = flat.module

        def forward(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            out = torch.func.functional_call(module, parameters, (x,))
            return out if isinstance(out, torch.Tensor) else out.logits

        self.mapped = torch.func.vmap(forward)

    def __call__(self, leaves: Leaves, x: torch.Tensor, share: torch.Tensor | None = None) -> torch.Tensor:
        if self.together is None:
            return self.outputs(leaves, x)
        logits = []
        for at in range(0, len(x), self.together):
            here = slice(at, at + self.together)
            count = len(x[here])
            logits.append(self.outputs([self.padded(leaf[here]) for leaf in leaves], self.padded(x[here]))[:count])
        return torch.cat(logits)

    def outputs(self, leaves: Leaves, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.mapped(dict(zip(self.names, leaves)), x)
        return found

    def padded(self, one: torch.Tensor) -> torch.Tensor:
        """With copies of the first client, which have no gradient."""
        assert self.together is not None
        missing = self.together - len(one)
        return torch.cat([one, one[:1].detach().expand(missing, *one.shape[1:])]) if missing else one


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Refuse a network that changes an attribute when it is called, and put it back: it would be one for all clients."""
    before = [(child, dict(vars(child)), inside(child)) for child in module.modules()]
    changed = False
    try:
        yield
    finally:
        for child, known, kept in before:
            now = vars(child)
            if now.keys() != known.keys() or any(now[name] is not value for name, value in known.items()):
                now.clear()
                now.update(known)
                changed = True
            for name, content in inside(child).items():
                if list(map(id, content)) != list(map(id, kept[name])):
                    known[name][:] = kept[name]
                    changed = True
    if changed:
        raise Unstackable(f"the model {type(module).__name__} changes itself when it is called")


def inside(module: nn.Module) -> dict[str, list[Any]]:
    """What a module's lists hold, by name."""
    return {name: [*value] for name, value in vars(module).items() if isinstance(value, list)}
