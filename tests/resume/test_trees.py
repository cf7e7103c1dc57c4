"""Trees as bytes: the format is safetensors', written without a copy."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.store import trees

KINDS = list(trees.DTYPES)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 4), max_size=3)), max_size=6), st.text())
def test_the_bytes_are_those_that_safetensors_writes(given_tensors, text):
    draw = torch.Generator().manual_seed(0)
    tensors = [(100 * torch.rand(shape, generator=draw)).to(kind) for kind, shape in given_tensors]
    written = trees.dump({"text": text, "tensors": tensors})
    length = int.from_bytes(written[:8], "little")
    named = {f"{number:06d}": tensor for number, tensor in enumerate(tensors)}
    assert written == safetensors.torch.save(named, metadata={"tree": header(written, length)})
    found = trees.load(written)
    assert found["text"] == text
    for before, after in zip(tensors, found["tensors"], strict=True):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert torch.equal(before.reshape(-1).view(torch.uint8), after.reshape(-1).view(torch.uint8))


def header(written: bytes, length: int) -> str:
    text: str = json.loads(written[8 : 8 + length])["__metadata__"]["tree"]
    return text


def test_no_piece_is_a_copy_of_a_tensor_and_a_view_writes_its_own_part():
    whole = torch.arange(10.0)
    _, piece = trees.pieces({"a": whole[2:5]})
    whole[3] = 99.0
    assert torch.frombuffer(bytearray(piece), dtype=torch.float32).tolist() == [2.0, 99.0, 4.0]


def test_a_tensor_that_has_no_place_in_a_tree_is_refused():
    with pytest.raises(TypeError, match="complex64"):
        trees.dump({"a": torch.ones(2, dtype=torch.complex64)})


def test_nothing_holds_the_tensors_of_a_tree_that_was_written_or_read():
    """Large states would pile up until the next garbage collection."""
    gc.disable()
    try:
        tensor = torch.ones(3)
        kept = weakref.ref(tensor)
        written = trees.dump({"a": [tensor]})
        del tensor
        assert kept() is None
        found = trees.load(written)
        kept = weakref.ref(found["a"][0])
        del found
        assert kept() is None
    finally:
        gc.enable()
