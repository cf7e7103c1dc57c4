"""Federated LoRA: which mean of the adapters is taken, stated on tiny matrices."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from undrift.contract.context import Replies
from undrift.core.errors import BadRequest
from undrift.core.low_rank import adapters, factored, truncated
from undrift.core.streams import torch_stream
from undrift.core.vector import Flat
from undrift.methods.combine import flexlora, flora, mean
from undrift.methods.private import fedsalora, ffalora
from undrift.methods.server import hetlora
from undrift.methods.weighting import loranorm
from undrift.testing import adapted_network, run_parts, tiny

FEATURES, CLASSES = 5, 3


def flat(rank: int = 2, merged: bool = False) -> Flat:
    torch.manual_seed(0)
    return Flat(adapted_network(FEATURES, CLASSES, rank=rank, merged=merged), torch.zeros(2, FEATURES))


def clients(layout, count: int = 3) -> list[torch.Tensor]:
    """Vectors in which everything but `lora_merged` differs."""
    draw = torch.Generator().manual_seed(1)
    vectors = [torch.randn(layout.n, generator=draw) for _ in range(count)]
    for vector in vectors:
        for adapter in adapters(layout):
            if adapter.merged is not None:
                vector[adapter.merged.place] = 0.5
    return vectors


def server(layout, vector: torch.Tensor | None = None):
    notes: dict[str, float] = {}
    return SimpleNamespace(
        plan=SimpleNamespace(layout=layout), vector=torch.zeros(layout.n) if vector is None else vector, round=0,
        note=lambda name, value, client=None: notes.update({name: value}), notes=notes,
        stream=lambda purpose: torch_stream(0, purpose, 0),
    )  # fmt: skip


def replies(vectors) -> Replies:
    m = len(vectors)
    return Replies(range(m), [1] * m, vectors, vectors, [1] * m, [1.0] * m, [0.0] * m, [0.0] * m)


def product(layout, vector: torch.Tensor) -> torch.Tensor:
    (adapter,) = adapters(layout)
    a, b = adapter.matrices(vector)
    return b @ a


WEIGHTS = [0.5, 0.3, 0.2]


def mean_product(layout, vectors, weights=WEIGHTS) -> torch.Tensor:
    return sum(weight * product(layout, vector) for vector, weight in zip(vectors, weights, strict=True))


def test_the_mean_of_the_factors_is_not_the_mean_of_the_products():
    """The trap, with numbers: two clients with the product 1, whose means multiply to 0."""
    layout = flat(rank=1).layout
    vectors = [torch.full((layout.n,), sign) for sign in (1.0, -1.0)]
    assert torch.equal(product(layout, vectors[0]), product(layout, vectors[1]))
    averaged = mean().combine(server(layout), replies(vectors), [0.5, 0.5])
    assert not product(layout, averaged).any()
    flexed = flexlora().combine(server(layout), replies(vectors), [0.5, 0.5])
    assert torch.allclose(product(layout, flexed), product(layout, vectors[0]), atol=1e-6)


def test_ffa_loras_mean_is_exact():
    """Σ p_k (B_k A) = (Σ p_k B_k) A, and the vector has no A at all."""
    network = adapted_network(FEATURES, CLASSES)
    frozen = [name for name, _ in network.named_parameters() if ".lora_A." in name]
    assert len(frozen) == 1
    A = torch.randn(2, FEATURES, dtype=torch.float64)
    Bs = [torch.randn(8, 2, dtype=torch.float64) for _ in WEIGHTS]
    exact = sum(w * (B @ A) for B, w in zip(Bs, WEIGHTS))
    assert torch.allclose(sum(w * B for B, w in zip(Bs, WEIGHTS)) @ A, exact, atol=1e-12)
    outcome = run_parts(ffalora(), tiny(), model=lambda: adapted_network(FEATURES, CLASSES))
    layout = outcome.setup.plan.layout
    assert [entry.name for entry in layout.entries][:1] == ["0.lora_B.default.weight"]
    assert [entry.name for entry in layout.frozen if "lora_A" in entry.name] == frozen
    (adapter,) = adapters(layout)
    assert not adapter.trained
    assert layout.part(outcome.vector, adapter.B.name).any()


@pytest.mark.parametrize("rank", [5, 6])
def test_flexlora_with_full_rank_has_the_mean_of_the_products(rank):
    layout = flat(rank).layout
    vectors = clients(layout)
    here = server(layout)
    out = flexlora().combine(here, replies(vectors), WEIGHTS)
    assert torch.allclose(product(layout, out), mean_product(layout, vectors), atol=1e-5)
    assert here.notes["lost"] == pytest.approx(0.0, abs=1e-9)
    assert torch.equal(
        layout.part(out, "2.weight"), layout.part(mean().combine(here, replies(vectors), WEIGHTS), "2.weight")
    )


def test_flexlora_with_less_is_the_nearest_of_its_rank():
    layout = flat(rank=2).layout
    vectors = clients(layout)
    here = server(layout)
    out = flexlora().combine(here, replies(vectors), WEIGHTS)
    M = mean_product(layout, vectors)
    s = torch.linalg.svdvals(M)
    assert float((product(layout, out) - M).norm()) == pytest.approx(float(s[2:].norm()), rel=1e-5)
    assert here.notes["lost"] == pytest.approx(float(s[2:].square().sum() / s.square().sum()), rel=1e-6)


def test_flexlora_of_adapters_that_are_still_zero_keeps_an_a_that_can_learn():
    a, b = factored(torch.zeros(8, 6, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64), 2)
    assert not b.any()
    assert torch.allclose(a @ a.T, torch.eye(2, dtype=torch.float64), atol=1e-12)


def test_flora_merges_the_products_exactly_and_begins_anew():
    """Law: what the layer adds after the round, s·(B A + M), is s·(M_before + Σ p_k B_k A_k)."""
    layout = flat(merged=True).layout
    vectors = clients(layout)
    (adapter,) = adapters(layout)
    before = torch.zeros(layout.n)
    before[adapter.merged.place] = 0.5
    out = flora().combine(server(layout, before), replies(vectors), WEIGHTS)
    merged = layout.part(out, adapter.merged.name)
    assert torch.allclose(merged.double(), 0.5 + mean_product(layout, vectors), atol=1e-6)
    assert not product(layout, out).any()
    assert layout.part(out, adapter.A.name).abs().max() <= FEATURES**-0.5
    assert layout.part(out, adapter.A.name).any()


def test_floras_base_stays_and_its_second_tree_learns():
    outcome = run_parts("flora", tiny(), model=lambda: adapted_network(FEATURES, CLASSES, merged=True))
    (adapter,) = adapters(outcome.setup.plan.layout)
    assert outcome.setup.plan.layout.part(outcome.vector, adapter.merged.name).any()
    assert outcome.setup.runtime.model.frozen.written() is None


def test_hetlora_with_equal_ranks_and_size_weights_is_fedavg_bit_for_bit():
    def network():
        return adapted_network(FEATURES, CLASSES)

    torch.manual_seed(0)
    plain = run_parts("fedavg", tiny(), model=network)
    equal = run_parts("hetlora(ranks=[2])@size", tiny(), model=network)
    assert torch.equal(plain.vector, equal.vector)


def test_a_client_of_rank_one_trains_and_sends_rank_one():
    outcome = run_parts("hetlora(ranks=[1])@size", tiny(), model=lambda: adapted_network(FEATURES, CLASSES, rank=3))
    (adapter,) = adapters(outcome.setup.plan.layout)
    a, b = adapter.matrices(outcome.vector)
    assert a[0].any()
    assert b[:, 0].any()
    assert not a[1:].any()
    assert not b[:, 1:].any()


def test_ranks_are_given_in_turns_and_go_from_one_to_the_adapters_by_default():
    assert [hetlora(ranks=(1, 4)).rank(client, 3) for client in range(4)] == [1, 3, 1, 3]
    assert [hetlora().rank(client, 3) for client in range(5)] == [1, 2, 3, 1, 2]


def test_a_truncated_model_has_the_first_rows_and_columns():
    layout = flat(rank=3).layout
    (adapter,) = adapters(layout)
    vector = clients(layout)[0]
    cut = vector.clone()
    truncated(adapter, cut, 2)
    (a, b), (short_a, short_b) = adapter.matrices(vector), adapter.matrices(cut)
    assert torch.allclose(short_b @ short_a, b[:, :2] @ a[:2])
    assert torch.equal(
        cut[~layout.mask([adapter.A.name, adapter.B.name])], vector[~layout.mask([adapter.A.name, adapter.B.name])]
    )


def test_clients_count_by_the_length_of_their_product():
    layout = flat(rank=1).layout
    (adapter,) = adapters(layout)
    vectors = [torch.zeros(layout.n) for _ in range(2)]
    for vector, scale in zip(vectors, (1.0, 3.0)):
        vector[adapter.A.place], vector[adapter.B.place] = scale, 1.0
    found = loranorm().weights(server(layout), replies(vectors))
    assert found.tolist() == pytest.approx([(5 * 8) ** 0.5, 3 * (5 * 8) ** 0.5])
    assert loranorm().weights(server(layout), replies([torch.zeros(layout.n)] * 2)).tolist() == [1.0, 1.0]


def test_fedsa_lora_shares_a_and_keeps_b():
    outcome = run_parts("fedsa-lora+scaffold@fednolowe", tiny(), model=lambda: adapted_network(FEATURES, CLASSES))
    plan = outcome.setup.plan
    (adapter,) = adapters(plan.layout)
    assert list(fedsalora().entries(plan.layout)) == [adapter.B.name]
    assert torch.equal(plan.private, plan.layout.mask([adapter.B.name]))
    own = [outcome.raw_state(client)["private"]["vector"] for client in range(4)]
    assert all(len(values) == 8 * 2 for values in own)
    assert not any(torch.equal(own[0], other) for other in own[1:])
    assert not plan.layout.part(outcome.vector, adapter.B.name).any()  # the server's is still Θ⁰'s


@pytest.mark.parametrize(
    ("text", "merged", "sentence"),
    [
        ("flexlora+ffa-lora", False, "flexlora needs both factors of an adapter, and one of 0's is frozen"),
        ("flexlora+fedsa-lora", False, "flexlora needs both factors of an adapter, and one of 0's is private"),
        ("flora", False, "flora merges into a second tree, and 0 has none; use --adapt"),
        ("flora+fedsa-lora", True, "flora needs both factors of an adapter, trained and shared"),
        ("hetlora+scaffold", False, "scaffold adds to every entry of a step, also beyond the rank that hetlora gives"),
        ("hetlora(ranks=[9])", False, "hetlora has the rank 9, and the adapters have 2; lower it"),
        ("hetlora(ranks=[0])", False, "hetlora's ranks are at least 1, not 0"),
    ],
)
def test_what_does_not_go_together_is_refused(text, merged, sentence):
    with pytest.raises(BadRequest) as refused:
        run_parts(text, tiny(), model=lambda: adapted_network(FEATURES, CLASSES, merged=merged))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("text", ["ffa-lora", "fedsa-lora", "flexlora", "flora", "hetlora"])
def test_a_network_without_adapters_is_refused_with_the_option_to_add(text):
    with pytest.raises(
        BadRequest, match=r'needs low-rank adapters, and the model has none; add --adapt "lora\(rank=8\)"'
    ):
        run_parts(text, tiny())


def test_scaffold_beside_flexlora_is_a_warning():
    outcome = run_parts("flexlora+scaffold", tiny(), model=lambda: adapted_network(FEATURES, CLASSES))
    assert [said for said in outcome.setup.notices if "flexlora turns the adapters' every round" in said]
