"""A model as one flat float32 vector θ = [P | F].

P holds the trainable parameters; F the persistent floating buffers (BatchNorm statistics). Integer buffers are sent
separately. Frozen parameters (`requires_grad=False`) are no part of it (`core/frozen.py`). The module's tensors are
*views* into the vector, so loading a model is one copy, SGD is a few vector operations, and averaging, mixing and
control variates never see a module.

Three traps, each met in practice:
- A view is lost silently when code replaces a tensor (`.double()`, `.to(memory_format=…)`, `load_state_dict(assign=True)`),
  so `Flat.intact` is asserted once per client.
- The head is the last module *executed* whose output is the logits, not the last one registered.
- Lazy modules need one forward pass first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from undrift.core.architecture import examined
from undrift.core.errors import BadRequest
from undrift.core.frozen import Frozen, frozen_of
from undrift.core.modules import Scratch, module_copy, persistent_buffers, put_back, scratch_buffers

Integers = dict[str, torch.Tensor]
HALVES = (torch.float16, torch.bfloat16)
View = tuple[dict[str, Any], str, int]  # the module's own dict, the name in it, the address it must have


@dataclass(frozen=True)
class Entry:
    """One tensor of the model: its name in the state dict and its place in the vector."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    kind: str  # "parameter" (in P), "buffer" (in F) or "frozen" (outside the vector: start = stop)
    dtype: str = "float32"

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def place(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its vector, and what one forward pass showed about the network."""

    entries: tuple[Entry, ...]
    integers: tuple[str, ...]
    nP: int
    n: int
    modules: tuple[tuple[str, str], ...] = ()  # (name, class name) of the leaf modules, in order of execution
    norms: frozenset[str] = frozenset()  # names of normalisation modules
    head: str | None = None  # the module whose output is the logits
    batchnorm_needs_two: bool = False  # BatchNorm would see one value per channel in a batch of one sample
    notes: tuple[str, ...] = field(default=(), compare=False)
    frozen: tuple[Entry, ...] = ()

    def trainable(self, vector: torch.Tensor) -> torch.Tensor:
        """The slice P of a vector (a view)."""
        return vector[: self.nP]

    def entry(self, name: str) -> Entry:
        return next(entry for entry in (*self.entries, *self.frozen) if entry.name == name)

    def part(self, vector: torch.Tensor, name: str) -> torch.Tensor:
        """The tensor called `name` inside a vector (a view in its own shape)."""
        entry = self.entry(name)
        return vector[entry.place].view(entry.shape)

    def mask(self, names: Iterable[str]) -> torch.Tensor:
        """True along the vector where the entries called `names` lie."""
        wanted, mask = set(names), torch.zeros(self.n, dtype=torch.bool)
        for entry in self.entries:
            if entry.name in wanted:
                mask[entry.place] = True
        return mask

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries] + list(self.integers)

    @property
    def signature(self) -> str:
        """A hash of names, shapes and kinds: two sites must agree on it."""
        text = repr([(e.name, e.shape, e.kind) for e in self.entries]) + repr(self.integers)
        if self.frozen:
            text += repr([(e.name, e.shape, e.dtype) for e in self.frozen])
        return hashlib.sha256(text.encode()).hexdigest()


class Flat:
    """A module whose parameters and floating buffers are views into `vector`."""

    def __init__(self, module: nn.Module, sample: Any, device: torch.device | str = "cpu") -> None:
        self.module, self._scratch, notes, shown = examined(module, sample, device)
        modules, norms, head, batchnorm_needs_two = shown
        trained = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self.frozen = Frozen(frozen_of(self.module))
        buffers, integers = persistent_buffers(self.module)
        entries, at = [], 0
        for kind, tensors in (("parameter", trained), ("buffer", buffers)):
            for name, tensor in tensors:
                if tensor.is_complex():
                    raise BadRequest(f"the model's {name} is complex; Undrift holds models as real float32 vectors")
                entries.append(Entry(name, tuple(tensor.shape), at, at + tensor.numel(), kind))
                at += tensor.numel()
        if not trained:
            raise BadRequest("the model has no trainable parameter; leave at least one unfrozen")
        nP = next((e.start for e in entries if e.kind != "parameter"), at)
        self.layout = Layout(
            tuple(entries), tuple(name for name, _ in integers), nP, at, modules, norms, head,
            batchnorm_needs_two, tuple(notes), frozen_entries(self.frozen, at),
        )  # fmt: skip
        self.vector = torch.empty(at, dtype=torch.float32, device=device)
        self.P = self.vector[:nP]
        self._integers = dict(integers)
        self.parameters = [p for _, p in trained]
        self._views: list[View] = []
        with torch.no_grad():
            owners = dict(self.module.named_modules())
            for entry, tensor in zip(entries, [t for _, t in trained + buffers], strict=True):
                view = self.vector[entry.place].view(entry.shape)
                view.copy_(tensor)
                if entry.kind != "buffer":
                    tensor.data = view
                self._views.append(tied(owners, entry, view))
        self._catch: torch.utils.hooks.RemovableHandle | None = None
        self.features: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        return self.vector.device

    def load(
        self, vector: torch.Tensor, integers: Integers | None = None, scratch: Sequence[Scratch] | None = None
    ) -> None:
        """Take the values of a vector. Buffers outside the state dict get their initial values (or `scratch`): they are
        not sent, so what an earlier client left in them would depend on which worker trained it."""
        self.vector.copy_(vector)
        for path, name, value in self._scratch if scratch is None else scratch:
            put_back(self.module.get_submodule(path)._buffers, name, value)
        for name, value in (integers or {}).items():
            self._integers[name].copy_(value)

    def kept(self) -> tuple[torch.Tensor, Integers, list[Scratch]]:
        """Copies of all that a forward pass may change: `load(*kept)` puts them back."""
        return self.vector.clone(), self.integers(), scratch_buffers(self.module)

    def integers(self) -> Integers:
        return {name: value.detach().clone().cpu() for name, value in self._integers.items()}

    def __call__(self, x: Any) -> torch.Tensor:
        out = self.module(x) if isinstance(x, torch.Tensor) else self.module(**x)  # columns by name
        out = out if isinstance(out, torch.Tensor) else out.logits
        return out.float() if out.dtype in HALVES else out  # of a base in half precision

    def gradients(self, loss: torch.Tensor) -> list[torch.Tensor]:
        """d loss / d P as autograd makes it: one fresh tensor per parameter, zeros where the loss does not depend."""
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g.contiguous() for g, p in zip(found, self.parameters)]

    def gradient(self, loss: torch.Tensor, into: torch.Tensor) -> None:
        """The same along one flat buffer. One concatenation is cheaper than accumulating into zeroed views, and no view
        can be lost."""
        torch.cat([g.view(-1) for g in self.gradients(loss)], out=into)

    def views(self, along: torch.Tensor) -> list[torch.Tensor]:
        """A vector along P, cut into tensors of the parameters' shapes (views)."""
        return [along[e.place].view(e.shape) for e in self.layout.entries if e.kind == "parameter"]

    def watch(self) -> None:
        """From now on `features` holds what entered the head in the last forward pass."""
        if self._catch is None:
            assert self.layout.head is not None
            self._catch = dict(self.module.named_modules())[self.layout.head].register_forward_pre_hook(self._caught)

    def _caught(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.features = args[0].flatten(1)

    def head(self, features: torch.Tensor) -> torch.Tensor:
        """The logits of given features."""
        assert self.layout.head is not None
        module = dict(self.module.named_modules())[self.layout.head]
        if isinstance(module, nn.Conv2d):
            features = features[:, :, None, None]
        logits: torch.Tensor = module(features)
        return logits.flatten(1)

    def intact(self) -> bool:
        """Whether the module's tensors, as it holds them now, still are views of the vector, and its frozen parameters
        those that were sealed."""
        whole = all(home[name].data_ptr() == pointer for home, name, pointer in self._views)
        return whole and self.frozen.written() is None

    def twin(self) -> Flat:
        """An independent copy of the network with a vector of its own. The frozen parameters are the same ones."""
        other = object.__new__(Flat)
        if self._catch is not None:
            self._catch.remove()
        saved, self.features = self.features, None
        module = module_copy(self.module, {id(p): p for p in self.frozen.parameters.values()})
        self.features = saved
        if self._catch is not None:
            self._catch = None
            self.watch()
        other.module, other.layout, other.frozen = module, self.layout, self.frozen
        other.vector = torch.empty_like(self.vector)
        other.P = other.vector[: self.layout.nP]
        parameters, owners = dict(module.named_parameters()), dict(module.named_modules())
        other._views = []
        with torch.no_grad():
            for entry in self.layout.entries:
                view = other.vector[entry.place].view(entry.shape)
                if entry.kind != "buffer":
                    parameters[entry.name].data = view
                other._views.append(tied(owners, entry, view))
        other.parameters = [parameters[e.name] for e in self.layout.entries if e.kind == "parameter"]
        other._integers = {name: dict(module.named_buffers())[name] for name in self.layout.integers}
        other._catch, other.features, other._scratch = None, None, self._scratch
        other.load(self.vector, self.integers())
        return other

    def state_dict(self, vector: torch.Tensor, integers: Integers | None = None) -> dict[str, torch.Tensor]:
        """An ordinary PyTorch state dict of `vector`, built by the module itself so that tied names are all there."""
        other = self.twin()
        other.load(vector, integers)
        return {name: value.detach().clone().contiguous() for name, value in other.module.state_dict().items()}

    def frozen_names(self) -> set[str]:
        """The names in the state dict that belong to frozen parameters, all names of tied ones included."""
        frozen = {id(parameter) for parameter in self.frozen.parameters.values()}
        return {name for name, value in self.module.state_dict(keep_vars=True).items() if id(value) in frozen}

    def read_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take the values of a state dict; names or shapes that differ are an error that names them. One without the
        frozen parameters leaves them as they are."""
        own, frozen = self.module.state_dict(), self.frozen_names()
        needed = set(own) if frozen & set(state) else set(own) - frozen
        if missing := sorted(needed - set(state)):
            raise BadRequest(f"the state dict lacks {missing[0]} (and {len(missing) - 1} more); is it of this model?")
        if extra := sorted(set(state) - set(own)):
            raise BadRequest(f"the state dict has {extra[0]}, which this model does not have; give one of this model")
        for name, value in state.items():
            if value.shape != own[name].shape:
                raise BadRequest(
                    f"{name} has shape {tuple(value.shape)} in the state dict and {tuple(own[name].shape)} in the model"
                )
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(value)
        self.frozen.seal()


def frozen_entries(frozen: Frozen, at: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(name, tuple(p.shape), at, at, "frozen", str(p.dtype).removeprefix("torch."))
        for name, p in frozen.parameters.items()
    )


def tied(owners: dict[str, nn.Module], entry: Entry, view: torch.Tensor) -> View:
    """Put a buffer's view in its place, and remember where the module keeps the tensor and where it must point."""
    owner, name = owners[entry.module], entry.name.rpartition(".")[2]
    if entry.kind == "buffer":
        owner._buffers[name] = view
    return (owner._buffers if entry.kind == "buffer" else owner._parameters), name, view.data_ptr()
