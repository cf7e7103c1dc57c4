"""Parameters, gradients and what the optimizer keeps, of a stack."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from undrift.contract.context import Plan
from undrift.round.lockstep.leaves import buffers_of
from undrift.round.lockstep.linear import padded_outputs, rounded

SMALL = 4096  # parameters
Rates = Sequence[tuple[float, list[int] | None]]  # a rate, and the places of the clients that have it (None: all)


class Vectors:
    """P, G, V (momentum, or Adam's mean) and S (Adam's squares): tensors [clients, width], where a width is a number of
    parameters, filled up to whole registers.

    `whole`: one tensor each, whose rows are the clients' vectors, as hooks see them. Otherwise there is one for every
    parameter of the network: then a layer's gradient goes from its product to SGD without a copy."""

    def __init__(self, plan: Plan, clients: int, device: torch.device, whole: bool) -> None:
        self.plan, self.whole = plan, whole
        self.entries = [entry for entry in plan.layout.entries if entry.kind == "parameter"]
        self.places = [slice(0, plan.layout.nP)] if whole else [entry.place for entry in self.entries]
        self.sizes = [place.stop - place.start for place in self.places]
        widths = [rounded(size) if whole else width(entry.shape) for size, entry in zip(self.sizes, self.entries)]
        # What fills up a row stays 0. Where nothing does, all that P and G hold is written before it is read.
        made = [torch.zeros if size < width else torch.empty for size, width in zip(self.sizes, widths)]
        self.P = [new(clients, width, device=device) for new, width in zip(made, widths)]
        self.G = [new(clients, width, device=device) for new, width in zip(made, widths)]
        adam = plan.optimizer == "adam"
        self.V = [torch.zeros_like(one) for one in self.P] if adam or plan.momentum > 0 else []
        self.S = [torch.zeros_like(one) for one in self.P] if adam else []
        # How many steps each client has taken, for Adam, and whether that is the same number for all.
        self.taken, self.even = torch.zeros(clients, 1, device=device), True
        self.F = torch.zeros(clients, plan.layout.n - plan.layout.nP, device=device)  # BatchNorm's statistics
        self.front, self.moving = 0, list[list[torch.Tensor]]()  # how many clients train, and their P, G, V and S

    @property
    def stacks(self) -> list[torch.Tensor]:
        """All that a step changes along the parameters."""
        return [*self.P, *self.V, *self.S]

    def forget(self) -> None:
        """As if no step had been taken, but for P."""
        for one in (*self.V, *self.S, self.taken):
            one.zero_()
        self.even = True

    def load(self, into: Sequence[torch.Tensor], rows: Sequence[torch.Tensor | None]) -> None:
        """Fill P or V with one row for every client; None leaves it as it is."""
        known = [number for number, row in enumerate(rows) if row is not None]
        if not known:
            return
        if (first := rows[0]) is not None and all(row is first for row in rows):  # one model, sent to all
            for one, place, size in zip(into, self.places, self.sizes):
                one[:, :size] = first[place]
            return
        together = torch.stack([row[: self.plan.layout.nP] for row in rows if row is not None])
        for one, place, size in zip(into, self.places, self.sizes):
            one[known, :size] = together[:, place]

    def load_statistics(self, rows: Sequence[torch.Tensor]) -> None:
        if self.F.size(1):
            torch.stack([row[self.plan.layout.nP :] for row in rows], out=self.F)

    def trained(self) -> list[torch.Tensor]:
        """The clients' models. Each is aligned like a tensor of its own, because sums round by alignment. Small ones are copies:
        they would be pickled with all the others."""
        n = self.plan.layout.n
        together = torch.empty(len(self.F), rounded(n), device=self.F.device)
        torch.cat([*self.cut(self.P), self.F], 1, out=together[:, :n])
        rows = [row[:n] for row in together.unbind()]
        return rows if n > SMALL else [row.clone() for row in rows]

    def rows(self, of: Sequence[torch.Tensor]) -> torch.Tensor:
        """[clients, nP] of P or V."""
        return torch.cat(self.cut(of), 1)

    def cut(self, of: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Without what fills up the registers."""
        return [one[:, :size] for one, size in zip(of, self.sizes)]

    def leaves(self, count: int, autograd: bool) -> list[torch.Tensor]:
        """The parameters of the first `count` clients, as views of P; for autograd as leaves of its graph."""
        if self.whole:
            found = [self.P[0][:count, entry.place] for entry in self.entries]
        else:
            found = [one[:count, :size] for one, size in zip(self.P, self.sizes)]
        views = [one.view(count, *entry.shape) for one, entry in zip(found, self.entries)]
        if autograd:
            views = [view.detach().requires_grad_() for view in views]
        return views + buffers_of(self.plan.layout, self.F[:count])

    def gradients(self, count: int) -> list[torch.Tensor]:
        """Where the first clients' gradients go, one tensor per parameter; a weight's with its padding outputs. Of stacks
        that are not `whole`."""
        assert not self.whole
        return [
            one[:count].view(count, -1, entry.shape[1]) if len(entry.shape) == 2 else one[:count, :size].view(count, *entry.shape)
            for one, size, entry in zip(self.G, self.sizes, self.entries)
        ]  # fmt: skip

    def take(self, grads: Sequence[torch.Tensor]) -> None:
        """The gradients of the first clients, one tensor per parameter, unless `backward` wrote them there."""
        if self.whole:
            count = grads[0].size(0)
            torch.cat([grad.reshape(count, -1) for grad in grads], dim=1, out=self.G[0][:count, : self.sizes[0]])

    def step(self, count: int, rates: Rates) -> None:
        """SGD or Adam of the first clients. Rows are whole registers, so the kernel rounds alike for one row and for all."""
        if count != self.front:
            self.front = count
            self.moving = [[one[:count] for one in stack] for stack in (self.P, self.G, self.V, self.S)]
        if self.S:
            self.taken[:count] += 1
        for lr, places in rates:
            if places is None and not self.even:
                places = list(range(count))
            if places is None:
                self.move(lr, self.moving)
            else:
                self.move(lr, [[one[place] for one in stack for place in places] for stack in self.moving], places)

    def step_row(self, place: int, lr: float) -> None:
        """SGD or Adam of one client, along its row of G; of stacks that are `whole`."""
        self.taken[place] += 1
        self.move(lr, [[one[place] for one in stack] for stack in (self.P, self.G, self.V, self.S)], [place])

    def move(self, lr: float, stacks: Sequence[list[torch.Tensor]], places: Sequence[int] = (0,)) -> None:
        """PyTorch's own kernels: one pass over memory for a whole stack. `places`: of the clients whose rows these are, in turn;
        all clients' steps are counted alike where they are one tensor."""
        p, g, v, square = stacks
        if self.S:
            taken = [self.taken[place, 0] for place in places]
            torch._fused_adam_(
                p, g, v, square, [], taken * (len(p) // len(taken)), lr=lr, beta1=0.9, beta2=0.999,
                weight_decay=self.plan.weight_decay, eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip
        else:
            torch._fused_sgd_(
                p, g, v, weight_decay=self.plan.weight_decay, momentum=self.plan.momentum, lr=lr, dampening=0.0,
                nesterov=False, maximize=False, is_first_step=False,
            )  # fmt: skip


def width(shape: Sequence[int]) -> int:
    """Of a parameter of its own: as wide as the product that gives its gradient."""
    return padded_outputs(*shape) * shape[1] if len(shape) == 2 else rounded(math.prod(shape))
