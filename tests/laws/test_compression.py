"""Laws of the compressing upload parts: neutral settings are plain, nothing is lost, rounding is unbiased, the wire is exact."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undrift as ud
from undrift.contract.declare import Malformed
from undrift.core.streams import torch_stream
from undrift.round.packed import most_packed_bytes, packed, unpacked
from undrift.testing import run_parts, tiny

CLIENTS = tiny()


def job(round: int = 0, private: torch.Tensor | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        plan=SimpleNamespace(private=private, unsent=private), stream=lambda purpose: torch_stream(0, purpose, round)
    )


def plan_of(*parts: object, n: int) -> SimpleNamespace:
    method = SimpleNamespace(on=lambda axis: list(parts))
    return SimpleNamespace(private=None, unsent=None, layout=SimpleNamespace(n=n), method=method)


@pytest.mark.parametrize("neutral", ["topk(1.0)", "quantize(32)", "topk(1.0)+upload.quantize(32)"])
def test_a_neutral_setting_is_plain_training(neutral):
    changed = run_parts(f"fedavg+upload.{neutral}", CLIENTS, rounds=3)
    plain = run_parts("fedavg", CLIENTS, rounds=3)
    assert torch.allclose(changed.vector, plain.vector, atol=1e-6, rtol=0)


@pytest.mark.parametrize("part", [ud.upload.topk(0.1), ud.upload.quantize(4)], ids=str)
def test_what_is_not_sent_is_sent_later(part):
    """Over all rounds, sent + residual = the updates, entry by entry."""
    residual, given, sent_in_all = None, torch.zeros(3000), torch.zeros(3000)
    draw = torch.Generator().manual_seed(1)
    for round in range(5):
        update = torch.randn(3000, generator=draw)
        before = residual
        residual, sent, _ = part.upload(job(round), None, residual, update, {})
        total = update if before is None else update + before
        assert torch.equal(sent + residual, total) or torch.allclose(sent + residual, total, atol=1e-7, rtol=0)
        given, sent_in_all = given + update, sent_in_all + sent
    assert torch.allclose(sent_in_all + residual, given, atol=1e-5, rtol=0)


def test_topk_sends_the_largest_entries_and_counts_shared_ones_only():
    update = torch.tensor([0.1, -5.0, 0.2, 3.0, -0.3, 0.0])
    _, sent, _ = ud.upload.topk(0.3).upload(job(), None, None, update, {})
    assert sent.tolist() == [0.0, -5.0, 0.0, 3.0, 0.0, 0.0]  # ⌈0.3 · 6⌉ = 2
    private = torch.tensor([False, False, False, False, True, True])
    _, sent, _ = ud.upload.topk(0.3).upload(job(private=private), None, None, update, {})
    assert int((sent != 0).sum()) == 2  # ⌈0.3 · 4⌉


@pytest.mark.parametrize("bits", [2, 4, 8, 12])
def test_rounding_is_unbiased_and_at_most_one_step_off(bits):
    part = ud.upload.quantize(bits)
    update = torch.linspace(-1, 1, 1024)
    step = part.step(update)
    assert step / 2 < 1 / part.most <= step  # the smallest power of two that reaches
    drawn = torch.stack([part.upload(job(round), None, None, update, {})[1] for round in range(400)]).double()
    assert float((drawn - update).abs().max()) < step
    # Each mean of 400 draws has a deviation of at most step/40; 1024 of them stay within five.
    assert float((drawn.mean(0) - update).abs().max()) < 5 * step / 40


CHAINS = [
    (ud.upload.topk(0.1),),
    (ud.upload.topk(0.9),),
    (ud.upload.quantize(3),),
    (ud.upload.quantize(8),),
    (ud.upload.quantize(16),),
    (ud.upload.topk(0.2), ud.upload.quantize(4)),
    (),
]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CHAINS), st.integers(1, 3000), st.integers(0, 10**6), st.sampled_from([0.0, 1e-30, 1.0, 1e20]))
def test_the_wire_gives_back_the_same_bits_within_the_declared_bytes(chain, n, seed, scale):
    plan = plan_of(*chain, n=n)
    draw, states = torch.Generator().manual_seed(seed), [None] * len(chain)
    sizes = scale * 10 ** (6 * torch.rand(n, generator=draw) - 3)  # entries of very different sizes
    for round in range(3):  # residuals of earlier rounds come along
        update = torch.randn(n, generator=draw) * sizes
        for i, part in enumerate(chain):
            states[i], update, _ = part.upload(job(round), None, states[i], update, {})
        arrays = packed(plan, update)
        assert torch.equal(unpacked(plan, arrays), update)
        assert sum(array.nbytes for array in arrays.values()) <= most_packed_bytes(plan)


def test_a_tenth_travels_as_an_eighth_of_the_bytes():
    update, size = torch.randn(100_000), 400_000
    for parts, share in (
        ((ud.upload.topk(0.1),), 0.1 + 1 / 32),  # the values, and a bit for every entry
        ((ud.upload.topk(0.01),), 0.02),  # where few entries are sent, an index beside each
        ((ud.upload.quantize(4),), 1 / 8),
        ((ud.upload.topk(0.1), ud.upload.quantize(8)), 0.025 + 1 / 32),
    ):
        sent = update
        for part in parts:
            _, sent, _ = part.upload(job(), None, None, sent, {})
        arrays = packed(plan_of(*parts, n=100_000), sent)
        assert sum(a.nbytes for a in arrays.values()) / size == pytest.approx(share, rel=0.01)


def places(*index: int, values: int = 10) -> dict[str, torch.Tensor]:
    return {"topk.index": torch.tensor(index, dtype=torch.int32), "values": torch.ones(values)}


def bits(*index: int, length: int = 13) -> dict[str, torch.Tensor]:
    sent = np.zeros(8 * length, dtype=bool)
    sent[list(index)] = True
    return {"topk.bits": torch.from_numpy(np.packbits(sent)), "values": torch.ones(10)}


FEW, MANY = (ud.upload.topk(0.01), 1000), (ud.upload.topk(0.1), 100)  # ten entries each: places as indices, and as bits
LIES = [
    (FEW, places(3, 1, *range(10, 18)), "ascend"),
    (FEW, places(1, 1, *range(10, 18)), "ascend"),
    (FEW, places(-1, 1, *range(10, 18)), "ascend"),
    (FEW, places(*range(9), 1000), "ascend"),
    (FEW, places(*range(9)), "9 numbers for its places instead of 10"),
    (FEW, places(*range(50), values=50), "50 numbers"),
    (FEW, places(*range(10), values=9), "10 places for 9"),
    (FEW, {"topk.index": torch.ones(1, 10, dtype=torch.int32), "values": torch.ones(10)}, "rows"),
    (FEW, {"values": torch.ones(10, dtype=torch.int64)}, "float32"),
    (FEW, {"other": torch.ones(3), "values": torch.ones(2)}, "no upload part"),
    (MANY, bits(*range(9)), "9 places for 10"),
    (MANY, bits(*range(11)), "11 places for 10"),
    (MANY, bits(*range(9), 100), "within the vector"),
    (MANY, bits(*range(10), length=14), "14 numbers"),
    (MANY, places(*range(10)), "0 numbers"),
]


@pytest.mark.parametrize(("kind", "arrays", "words"), LIES, ids=range(len(LIES)))
def test_an_update_that_is_not_packed_as_declared_is_malformed(kind, arrays, words):
    part, size = kind
    with pytest.raises(Malformed, match=words):
        unpacked(plan_of(part, n=size), arrays)


def test_levels_out_of_range_are_malformed():
    part = ud.upload.quantize(4)
    good, _ = part.pack(torch.ones(10))
    for name, bad in (("levels", torch.zeros(5, dtype=torch.uint8)), ("step", torch.tensor([500], dtype=torch.int16))):
        with pytest.raises(Malformed):
            part.unpack({**good, name: bad}, torch.empty(0), 10)
    with pytest.raises(Malformed):
        part.unpack({"levels": good["levels"]}, torch.empty(0), 10)


def test_residuals_are_client_state():
    run = run_parts("fedavg+upload.topk(0.1)", CLIENTS, rounds=2)
    assert all(float(run.state(client).abs().sum()) > 0 for client in range(CLIENTS.clients))
