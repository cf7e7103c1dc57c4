"""Laws of FedMA."""

from __future__ import annotations

import pytest
import torch

from undrift import models
from undrift.core.errors import BadRequest
from undrift.core.vector import Flat
from undrift.methods import combine
from undrift.methods.combine.fedma import aligned, assignment, chain, permute
from undrift.testing import run_parts


def network(name, shape=(1, 12, 12), options=None):
    torch.manual_seed(0)
    flat = Flat(models.build(name, shape, 4, (), options or {}), torch.randn(2, *shape))
    with torch.no_grad():  # statistics that differ from unit to unit
        for entry in flat.layout.entries:
            if "running" in entry.name:
                flat.vector[entry.place] = torch.rand(entry.stop - entry.start) + 0.5
    return flat


def shuffled(layout, vector, seed):
    """The same function with all hidden units in another order."""
    draw, out = torch.Generator().manual_seed(seed), vector.clone()
    layers, order = chain(layout), None
    for layer in layers:
        if order is not None:
            permute(out, layer.weight, 1, order)
        if layer is not layers[-1]:
            order = torch.randperm(layer.units, generator=draw)
            for entry in (layer.weight, layer.bias, *layer.after):
                if entry is not None:
                    permute(out, entry, 0, order)
    return out


NETWORKS = [("mlp", (20,), None), ("mlp", (20,), {"norm": "batch"}), ("lenet5", (1, 28, 28), None),
            ("cnn", (3, 12, 12), None), ("cnn3", (1, 16, 16), None), ("vgg9", (3, 16, 16), None)]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS)
def test_a_shuffled_network_computes_the_same_and_is_recovered(name, shape, options):
    flat = network(name, shape, options)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    flat.module.eval()
    original, before = flat.vector.clone(), flat(x).detach()
    other = shuffled(flat.layout, original, seed=5)
    flat.load(other)
    assert torch.allclose(flat(x), before, atol=1e-5)
    recovered, moved = aligned(flat.layout, other, original)
    assert torch.equal(recovered, original)
    assert moved > 0


def test_the_mean_of_permuted_copies_is_the_one_network(server, replies, planned):
    flat = network("cnn")
    copies = [shuffled(flat.layout, flat.vector, seed) for seed in range(4)]
    window = server(plan=planned(layout=flat.layout), vector=flat.vector)
    cohort = replies(4, n=[1, 7, 1, 2], vectors=copies, sent=copies)
    out = combine.fedma().combine(window, cohort, [0.25] * 4)
    assert torch.allclose(out, copies[1], rtol=0, atol=1e-6)  # in the order of the client with most data
    flat.load(out)
    x = torch.randn(3, 1, 12, 12)
    flat.module.eval()
    merged = flat(x)
    flat.load(copies[0])
    assert torch.allclose(merged, flat(x), atol=1e-5)


@pytest.mark.parametrize("variant", ["matching", "fednolowe"])
def test_class_rows_are_permuted_only_by_the_authors_script(server, replies, planned, variant):
    flat = network("mlp", (6,))
    layout = flat.layout
    head = layout.entry(f"{layout.head}.weight")
    turned = flat.vector.clone()
    turned[head.place] = layout.part(turned, head.name).flip(0).flatten()  # the same head with its classes reversed
    window = server(plan=planned(layout=layout), vector=flat.vector)
    cohort = replies(2, vectors=[flat.vector, turned], sent=[flat.vector] * 2)
    out = combine.fedma(variant).combine(window, cohort, [0.5, 0.5])
    mean = (flat.vector[head.place] + turned[head.place]) / 2
    assert torch.allclose(out[head.place], mean if variant == "matching" else flat.vector[head.place])


def test_plain_and_squared_distance_can_assign_differently():
    """Own (0, 0), (1, ½); reference (1, ½), (2, 0). In order the distances are √1.25 twice, crossed 0 and 2: the plain sum is
    smaller crossed (2 < 2.24), the squared one in order (2.5 < 4)."""
    own, reference = torch.tensor([[0.0, 0.0], [1.0, 0.5]]), torch.tensor([[1.0, 0.5], [2.0, 0.0]])
    assert assignment(own, reference, plain=True).tolist() == [1, 0]
    assert assignment(own, reference).tolist() == [0, 1]


def test_clients_near_the_reference_keep_their_order(tiny):
    run = run_parts("fedma", tiny, rounds=1, lr=0.01)
    assert all(value == 0 for _, _, value in run.notes("moved"))
    assert torch.equal(run.vector, run_parts("fedavg", tiny, rounds=1, lr=0.01).vector)


def test_the_simplified_variant_matches_rows_alone(server, replies, planned):
    flat = network("mlp", (6,))
    layout = flat.layout
    first = next(entry for entry in layout.entries if len(entry.shape) == 2)
    turned = flat.vector.clone()
    turned[first.place] = layout.part(turned, first.name).flip(0).flatten()
    window = server(plan=planned(layout=layout), vector=flat.vector)
    cohort = replies(2, vectors=[flat.vector, turned], sent=[turned] * 2)
    out = combine.fedma("fednolowe").combine(window, cohort, [0.5, 0.5])
    assert torch.allclose(out, flat.vector, atol=1e-7)


def test_one_client_is_the_identity(server, replies, planned):
    flat = network("mlp", (6,))
    window = server(plan=planned(layout=flat.layout), vector=flat.vector)
    alone = replies(1, vectors=[flat.vector], sent=[flat.vector])
    assert torch.equal(combine.fedma().combine(window, alone, [1.0]), flat.vector)


class Skipping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = torch.nn.Linear(5, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        h = self.a(x)
        return self.c(self.b(h) + self.b(h).relu())


@pytest.mark.parametrize("name", ["resnet8", "resnet8-thin", "resnet20", "mobilenetv2"])
def test_residual_networks_are_refused(name, planned):
    flat = Flat(models.build(name, (3, 32, 32), 4, (), {}), torch.zeros(2, 3, 32, 32))
    (problem,) = combine.fedma().check(planned(layout=flat.layout))
    assert problem.level == "error"
    assert "chain" in problem.sentence
    assert list(combine.fedma("fednolowe").check(planned(layout=flat.layout))) == []


def test_shared_layers_and_group_norms_are_refused(planned, tiny):
    with pytest.raises(BadRequest, match="runs twice"):
        run_parts("fedma", tiny, model=Skipping)
    grouped = Flat(models.build("cnn3", (1, 16, 16), 4, (), {"norm": "group"}), torch.zeros(2, 1, 16, 16))
    (problem,) = combine.fedma().check(planned(layout=grouped.layout))
    assert "GroupNorm" in problem.sentence
    with pytest.raises(BadRequest, match="fedma"):
        combine.fedma("other")
