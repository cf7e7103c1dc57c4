"""A client's samples in one round, and the passes of models over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from undrift.contract.context import Plan
from undrift.core import samples
from undrift.core.vector import Flat, Integers

if TYPE_CHECKING:
    from undrift.contract.networks import StackedModel

Outputs = tuple[torch.Tensor, torch.Tensor | None]  # logits, and features where they are wanted
CHUNK = 1000  # samples per evaluation pass: a constant, because it changes bits


class RowsInPlace(NamedTuple):
    """A client's samples as rows of tensors that hold those of all clients."""

    x: torch.Tensor
    y: Any
    rows: torch.Tensor


class ClientRuntime(Protocol):
    """What a client's round needs of the machine it runs on (`round/runtime.py` has it)."""

    plan: Plan
    initial: torch.Tensor  # Θ⁰

    @property
    def loss(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]: ...
    def sample_loss(self, output: torch.Tensor, y: Any) -> torch.Tensor: ...
    def train(self, client: int) -> tuple[Any, Any]: ...
    def rows_in_place(self, client: int) -> RowsInPlace | None: ...
    def own_test(self, client: int) -> tuple[Any, Any]: ...
    def network_input(self, x: Any) -> Any: ...
    def spare(self, number: int) -> Flat: ...
    def stacked_passes(
        self, asked: Sequence[tuple[torch.Tensor, Any]], features: bool = False
    ) -> list[Outputs] | None: ...
    def wants(self, need: str) -> bool: ...


@dataclass(frozen=True)
class Scored:
    """One un-augmented eval pass over the client's training data."""

    logits: torch.Tensor
    loss: torch.Tensor  # per sample
    features: torch.Tensor | None  # where a part needs "features"


class ClientData:
    """A client's samples in one round, the passes over them, and what was counted and noted."""

    def __init__(self, runtime: ClientRuntime, round: int, client: int, integers: Integers) -> None:
        self.runtime, self.round, self.client, self.integers = runtime, round, client, integers
        self.plan: Plan = runtime.plan
        # x and y are copied at their first use: a stack reads its batches in place.
        self.in_place = runtime.rows_in_place(client)
        self._x: Any = None
        self._y: Any = None
        if self.in_place is None:
            self._x, self._y = runtime.train(client)
        self.n = len(self._y if self.in_place is None else self.in_place.rows)
        self.held_out: tuple[Any, Any] | None = None  # samples that are held out, and their targets
        self.notes: list[tuple[str, str, str]] = []  # part, name, JSON
        self.samples_scored = 0  # samples that passed through a network to be scored
        self.samples_trained = 0  # samples trained on, those of twins included
        self.scoring = 0.0  # seconds that scoring took
        self.ahead: dict[str, Outputs] = {}  # passes made before they are asked for
        self.lockstep = False  # whether the client may train in a stack
        self.second_models: list[StackedModel] = []  # what the stack trains beside the client's model
        self._scored: dict[str, Scored] = {}
        self._used = 0

    @property
    def x(self) -> Any:
        """The client's samples."""
        if self._x is None and self.in_place is not None:
            self._x = self.in_place.x[self.in_place.rows]
        return self._x

    @property
    def y(self) -> Any:
        """Their targets."""
        if self._y is None and self.in_place is not None:
            self._y = self.in_place.y[self.in_place.rows]
        return self._y

    def hold_out(self, positions: torch.Tensor) -> None:
        if not len(positions):
            return
        keep = torch.ones(self.n, dtype=torch.bool)
        keep[positions] = False
        self.held_out = self.x[~keep], self.y[~keep]
        self._x, self._y, self.in_place = self.x[keep], self.y[keep], None
        self.n = len(self._y)

    def rows(self, on: str) -> tuple[Any, Any]:
        """(x, y) of the "train" or the held-out ("held") samples, or of the client's own slice of the "test" set."""
        if on == "test":
            return self.runtime.own_test(self.client)
        if on == "train":
            return self.x, self.y
        return (self.x[:0], self.y[:0]) if self.held_out is None else self.held_out

    def passes(self, vectors: Sequence[torch.Tensor], x: Any, features: bool = False) -> list[Outputs]:
        """(logits, features) of every vector on the same samples, in eval mode."""
        began = time.perf_counter()
        self.samples_scored += len(vectors) * len(x)
        found = self.runtime.stacked_passes([(vector, x) for vector in vectors], features)
        if found is None:
            found = [eval_pass(self.runtime, vector, self.integers, x, features) for vector in vectors]
        self.scoring += time.perf_counter() - began
        return found

    def scored(self, role: str, vector: torch.Tensor) -> Scored:
        if role not in self._scored:
            if (ready := self.ahead.pop(role, None)) is not None:
                self.samples_scored += self.n
            logits, features = ready or self.passes([vector], self.x, self.runtime.wants("features"))[0]
            self._scored[role] = Scored(logits, self.runtime.sample_loss(logits, self.y), features)
        return self._scored[role]

    @property
    def in_stack(self) -> bool:
        """Whether the client trains in a stack. From one sample BatchNorm has nothing to learn: its statistics then stay as
        they are, which no stack can do."""
        return self.lockstep and not (self.plan.layout.batchnorm_needs_two and self.n == 1)

    @property
    def borrows(self) -> bool:
        """Whether a part holds a network of the worker's, which the worker's next client may need."""
        return self._used > 0

    def network(self, vector: torch.Tensor) -> Flat:
        """A network of the client's own for this round, beside the one that trains."""
        self._used += 1
        other = self.runtime.spare(self._used)
        other.load(vector, self.integers)
        return other


def eval_pass(runtime: ClientRuntime, vector: torch.Tensor, integers: Integers, x: Any, features: bool) -> Outputs:
    """A pass of one model through the spare network."""
    spare = runtime.spare(0)
    spare.load(vector, integers)
    if features:
        spare.watch()
    return eval_logits(spare, x, runtime.network_input, features)


def eval_logits(flat: Flat, x: Any, network_input: Callable[[Any], Any], features: bool = False) -> Outputs:
    """Logits (and features) in eval mode, in chunks of constant size."""
    flat.module.eval()
    outputs, inputs_of_head = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        for at in range(0, len(x), CHUNK):
            outputs.append(flat(network_input(x[at : at + CHUNK])))
            if features and flat.features is not None:
                inputs_of_head.append(flat.features)
    if not outputs:
        return torch.zeros(0, 1), None
    return samples.stacked_outputs(outputs), torch.cat(inputs_of_head) if inputs_of_head else None
