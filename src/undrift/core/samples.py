"""Samples that are not one tensor: several named columns, and sequences of unequal length.

`x` and `y` of a federation are a tensor, `Columns` (a dict of tensors with a common first axis) or `Ragged` (sequences).
All three know `len(x)`, `x[rows]` and `x.to(device)`, so whoever picks rows need not ask which one it has. A batch is
`padded`: then there are only tensors and columns of tensors. Integers stay integers.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, KeysView, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from undrift.core.errors import BadRequest

OFFSETS, PAD = ".offsets", ".pad"  # of the arrays of a sequence in a file


class Ragged:
    """Sequences of unequal length: all their values in one row, and where each begins. A batch is filled up to its
    longest sequence with `pad`, a value that no sequence holds."""

    def __init__(self, sequences: Any, pad: float, offsets: Any = None) -> None:
        """From a list of sequences, or from all values in a row and the offsets of the sequences (0, …, total)."""
        if offsets is None:
            pieces = [torch.as_tensor(one) for one in sequences]
            lengths = torch.tensor([len(piece) for piece in pieces], dtype=torch.long)
            offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
            sequences = torch.cat(pieces) if pieces else torch.zeros(0)
        values, offsets = torch.as_tensor(sequences), torch.as_tensor(offsets).long()
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(values):
            raise BadRequest(
                f"the offsets of sequences begin with 0 and end with the number of values, here {len(values)}"
            )
        lengths = offsets.diff()
        if len(lengths) and lengths.min() < 1:
            place = int((lengths < 1).nonzero()[0])
            raise BadRequest(f"sequence {place} has length {int(lengths[place])}; leave it out")
        if bool((values == pad).any()):
            raise BadRequest(f"the pad value {pad:g} is also a value of a sequence; choose one that none holds")
        self.values, self.offsets, self.pad = values, offsets, pad

    @staticmethod
    def made(values: torch.Tensor, offsets: torch.Tensor, pad: float) -> Ragged:
        """Without checks: of parts of sequences that were checked."""
        new = object.__new__(Ragged)
        new.values, new.offsets, new.pad = values, offsets, pad
        return new

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> torch.Tensor:
        found: torch.Tensor = self.offsets.diff()
        return found

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def longest(self) -> int:
        return int(self.lengths.max()) if len(self) else 0

    def __getitem__(self, rows: Any) -> Ragged:
        rows = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        places = torch.arange(len(self), device=self.offsets.device)[rows]
        starts, lengths = self.offsets[places], self.lengths[places]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        within = torch.arange(int(offsets[-1]), device=lengths.device) - offsets[:-1].repeat_interleave(lengths)
        return Ragged.made(self.values[starts.repeat_interleave(lengths) + within], offsets, self.pad)

    def padded(self, length: int | None = None) -> torch.Tensor:
        """[sequences, length, …], by default as long as the longest."""
        longest = self.longest if length is None else length
        out = self.values.new_full((len(self), longest, *self.values.shape[1:]), self.pad)
        there = torch.arange(longest, device=out.device) < self.lengths[:, None]
        out[there] = self.values
        return out

    def to(self, device: Any) -> Ragged:
        return Ragged.made(self.values.to(device), self.offsets.to(device), self.pad)


class Columns:
    """A dict of tensors or sequences with a common first axis, the samples: `len` counts samples. A network is called
    with its columns by name."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        if not columns:
            raise BadRequest("samples without a column hold nothing; give at least one")
        self.columns = {
            name: value if isinstance(value, Ragged) else torch.as_tensor(value) for name, value in columns.items()
        }
        first, *others = self.columns
        for name in others:
            if len(self.columns[name]) != len(self):
                raise BadRequest(
                    f"the column {name} has {len(self.columns[name])} samples, {first} has {len(self)}; give one row per sample"
                )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def keys(self) -> KeysView[str]:
        return self.columns.keys()

    def items(self) -> ItemsView[str, Any]:
        return self.columns.items()

    def __getitem__(self, rows: Any) -> Any:
        """The column of a name, or the samples in some rows."""
        return self.columns[rows] if isinstance(rows, str) else self.each(lambda column: column[rows])

    def each(self, function: Callable[[Any], Any]) -> Columns:
        new = object.__new__(Columns)
        new.columns = {name: function(column) for name, column in self.columns.items()}
        return new

    def to(self, device: Any) -> Columns:
        return self.each(lambda column: column.to(device))


Samples = torch.Tensor | Columns | Ragged


def of(given: Any) -> Samples:
    """What a user gives: a dict becomes columns, anything else that is no sequence a tensor."""
    if isinstance(given, (Columns, Ragged)):
        return given
    return Columns(given) if isinstance(given, Mapping) else torch.as_tensor(given)


def shape(x: Any) -> Any:
    """The shape of one sample: of sequences with the longest length, of columns by name."""
    if isinstance(x, Columns):
        return {name: shape(column) for name, column in x.items()}
    return (x.longest, *x.values.shape[1:]) if isinstance(x, Ragged) else tuple(x.shape[1:])


def fixed_shape(x: Any) -> Any:
    """The same without the length of sequences: what all samples must have in common."""
    if isinstance(x, Columns):
        return {name: fixed_shape(column) for name, column in x.items()}
    return ("any length", *x.values.shape[1:]) if isinstance(x, Ragged) else tuple(x.shape[1:])


def as_given(x: Any) -> Samples:
    """Inputs that nothing is done to: floats as float32, whole numbers as int64."""

    def number(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.float() if leaf.is_floating_point() else leaf.long()

    if isinstance(x, np.ndarray):
        x = torch.from_numpy(np.array(x))  # a mapped file is read-only
    x = of(x)
    if isinstance(x, Ragged):
        return Ragged.made(number(x.values), x.offsets, x.pad)
    return x.each(as_given) if isinstance(x, Columns) else number(x)


def mapped(x: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same samples with `function(tensor)` for every tensor in them."""
    if isinstance(x, Columns):
        return x.each(lambda column: mapped(column, function))
    return Ragged.made(function(x.values), function(x.offsets), x.pad) if isinstance(x, Ragged) else function(x)


def leaves(x: Any) -> list[torch.Tensor]:
    """The tensors in samples, in the order of their names."""
    if isinstance(x, Columns):
        return [leaf for _, column in sorted(x.items()) for leaf in leaves(column)]
    return [x.values, x.offsets] if isinstance(x, Ragged) else [x]


def put(x: Any, rows: np.ndarray, values: Any) -> Any:
    """The same samples with other values in some rows, of the same lengths."""
    if isinstance(x, Columns):
        return Columns({name: put(column, rows, values[name]) for name, column in x.items()})
    if isinstance(x, torch.Tensor):
        return x.index_copy(0, torch.from_numpy(rows), values)
    places = torch.arange(len(x.values)).split(x.lengths.tolist())
    changed = x.values.clone()
    changed[torch.cat([places[row] for row in rows.tolist()])] = values.values
    return Ragged.made(changed, x.offsets, x.pad)


def padded(x: Any) -> Any:
    """A batch: tensors only."""
    if isinstance(x, torch.Tensor):
        return x
    return x.each(padded) if isinstance(x, Columns) else x.padded()


def aligned(y: Any, output: torch.Tensor) -> Any:
    """Targets as tensors, sequences as long as the output."""
    if isinstance(y, torch.Tensor):
        return y
    return y.each(lambda column: aligned(column, output)) if isinstance(y, Columns) else y.padded(output.size(1))


def joined(pieces: Sequence[Any]) -> Any:
    """The samples of all pieces, in order."""
    first = pieces[0]
    if isinstance(first, Columns):
        return Columns({name: joined([piece[name] for piece in pieces]) for name in first.keys()})  # noqa: SIM118
    if isinstance(first, torch.Tensor):
        return torch.cat(list(pieces))
    lengths = torch.cat([piece.lengths for piece in pieces])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return Ragged.made(torch.cat([piece.values for piece in pieces]), offsets, first.pad)


def stacked_outputs(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Outputs of several batches as one tensor. Those of sequences are filled up with zeros, which targets pad too."""
    longest = max((tuple(output.shape[1:]) for output in outputs), default=(0,))
    if any(tuple(output.shape[1:]) != longest for output in outputs):
        outputs = [torch.cat([o, o.new_zeros(len(o), longest[0] - o.size(1), *o.shape[2:])], dim=1) for o in outputs]
    return torch.cat(list(outputs))


def from_arrays(name: str, arrays: Mapping[str, np.ndarray]) -> Any:
    """The samples that a file holds under a name: an array, NAME with NAME.offsets and NAME.pad, or columns NAME.COLUMN.
    None if it holds none. Plain arrays stay arrays."""
    if name + OFFSETS in arrays:
        if name + PAD not in arrays or name not in arrays:
            raise BadRequest(f"{name}{OFFSETS} makes sequences of {name}; give {name} and {name}{PAD} too")
        return Ragged(np.array(arrays[name]), np.array(arrays[name + PAD]).item(), np.array(arrays[name + OFFSETS]))
    if name in arrays:
        return arrays[name]
    columns = [key for key in arrays if key.startswith(f"{name}.") and not key.endswith((OFFSETS, PAD))]
    if not columns:
        return None
    # Copies: what is mapped from a file is read-only.
    found = {key.removeprefix(f"{name}."): from_arrays(key, arrays) for key in columns}
    return Columns({key: value if isinstance(value, Ragged) else np.array(value) for key, value in found.items()})


def to_arrays(name: str, x: Any) -> dict[str, np.ndarray]:
    """The arrays that `from_arrays` reads."""
    if isinstance(x, Columns):
        return {
            key: array for column, value in x.items() for key, array in to_arrays(f"{name}.{column}", value).items()
        }
    if isinstance(x, Ragged):
        return {name: x.values.numpy(), name + OFFSETS: x.offsets.numpy(), name + PAD: np.asarray(x.pad)}
    return {name: x.numpy() if isinstance(x, torch.Tensor) else x}
