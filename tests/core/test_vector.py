"""A model as one flat vector [P | F], and the traps of views."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.core.vector import Flat

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def flat(module: nn.Module, x: torch.Tensor = X) -> Flat:
    return Flat(module, x)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def test_parameters_come_first_then_buffers_and_frozen_ones_are_outside():
    module = network()
    module[0].weight.requires_grad_(False)
    layout = flat(module).layout
    kinds = [entry.kind for entry in layout.entries]
    assert kinds == sorted(kinds, key=["parameter", "buffer"].index)
    assert layout.entry("0.weight").kind == "frozen"
    assert layout.nP == sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert layout.n == layout.nP + 10
    assert layout.integers == ("1.num_batches_tracked",)


def test_the_modules_tensors_are_views_of_the_vector():
    model = flat(network())
    assert not model.layout.part(model.vector, "1.running_mean").any()
    model.module(X)  # in train mode BatchNorm writes its statistics into the vector
    assert model.layout.part(model.vector, "1.running_mean").any()
    with torch.no_grad():
        model.vector.zero_()
    assert not any(p.any() for p in model.module.parameters())
    assert not model.module[1].running_var.any()
    assert model.intact()


@pytest.mark.parametrize(
    "lose", [lambda m: m.double(), lambda m: m.load_state_dict(network().state_dict(), assign=True)]
)
def test_a_lost_view_is_noticed(lose):
    model = flat(network())
    assert model.intact()
    lose(model.module)
    assert not model.intact()


def test_the_gradient_is_that_of_autograd():
    model = flat(network())
    loss = model(X).square().sum()
    G = torch.empty_like(model.P)
    model.gradient(loss, into=G)
    model(X).square().sum().backward()
    assert torch.allclose(G, torch.cat([p.grad.reshape(-1) for p in model.parameters]))


def test_a_parameter_that_is_not_used_has_no_gradient_and_no_error():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            return self.used(x)

    model = flat(Spare())
    G = torch.ones_like(model.P)
    model.gradient(model(X).sum(), into=G)
    assert not model.layout.part(torch.cat([G, model.vector[model.layout.nP :]]), "spare.weight").any()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 6)
        self.outer.weight = self.inner.weight

    def forward(self, x):
        return self.outer(self.inner(x))


def test_tied_weights_are_held_once_and_exported_under_both_names():
    model = flat(Tied())
    assert model.layout.n == 36 + 6 + 6
    assert model.module.inner.weight is model.module.outer.weight
    state = model.state_dict(torch.arange(48.0))
    assert torch.equal(state["inner.weight"], state["outer.weight"])
    other = Tied()
    other.load_state_dict(state)
    twin = model.twin()
    assert twin.module.inner.weight is twin.module.outer.weight
    assert twin.intact()


def test_a_state_dict_goes_there_and_back():
    model, other = flat(network()), flat(network())
    model.module(X)
    vector = torch.randn(model.layout.n)
    integers = {"1.num_batches_tracked": torch.tensor(7)}
    state = model.state_dict(vector, integers)
    assert state["1.num_batches_tracked"] == 7
    other.read_state_dict(state)
    assert torch.equal(other.vector, vector)
    assert other.integers() == integers
    network().load_state_dict(state)  # an ordinary one


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda s: s.pop("0.bias"), "lacks 0.bias"),
        (lambda s: s.update(extra=torch.zeros(1)), "extra"),
        (lambda s: s.update({"0.bias": torch.zeros(9)}), "shape"),
    ],
)
def test_a_state_dict_of_another_model_is_refused_by_name(change, word):
    model = flat(network())
    state = model.state_dict(model.vector)
    change(state)
    with pytest.raises(BadRequest, match=word):
        model.read_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_half_and_double_become_float32_and_that_is_said(dtype):
    module = nn.Linear(6, 3).to(dtype)
    model = Flat(module, X)
    assert model.vector.dtype == torch.float32
    assert any(str(dtype).removeprefix("torch.") in note for note in model.layout.notes)
    assert model(X).dtype == torch.float32


def test_complex_is_refused():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)
            self.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))

        def forward(self, x):
            return self.head(x) * self.phase.real

    with pytest.raises(BadRequest, match="phase is complex"):
        flat(Complex())


def test_nothing_to_train_is_refused():
    module = nn.Linear(6, 3).requires_grad_(False)
    with pytest.raises(BadRequest, match="no trainable parameter"):
        flat(module)


def test_buffers_that_are_not_persistent_do_not_travel():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)
            self.register_buffer("cache", torch.ones(9), persistent=False)
            self.register_buffer("kept", torch.ones(2))

        def forward(self, x):
            return self.head(x)

    assert [entry.name for entry in flat(Cached()).layout.entries] == ["head.weight", "head.bias", "kept"]


def test_lazy_modules_take_shape_before_they_are_flattened():
    model = flat(nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(3)))
    assert model.layout.n == 6 * 5 + 5 + 5 * 3 + 3


class LastRegisteredFirst(nn.Module):
    """Registered in the opposite order of their execution, with an auxiliary head of the same width."""

    def __init__(self):
        super().__init__()
        self.head, self.aside, self.body = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(6, 5)

    def forward(self, x):
        h = torch.relu(self.body(x))
        self.aside(h)
        return SimpleNamespace(logits=self.head(h), hidden=h)


def test_the_head_is_the_last_executed_layer_that_gives_the_logits():
    model = flat(LastRegisteredFirst())
    assert model.layout.head == "head"
    assert model.layout.modules == (("body", "Linear"), ("aside", "Linear"), ("head", "Linear"))
    assert model(X).shape == (4, 3)


def test_features_are_what_enters_the_head():
    model = flat(LastRegisteredFirst())
    model.watch()
    logits = model(X)
    assert torch.equal(model.head(model.features), logits)


def test_a_one_by_one_convolution_may_be_the_head():
    class Convolutional(nn.Sequential):
        def forward(self, x):
            return super().forward(x).flatten(1)

    model = flat(Convolutional(nn.Unflatten(1, (6, 1, 1)), nn.Conv2d(6, 5, 1), nn.ReLU(), nn.Conv2d(5, 3, 1)))
    assert model.layout.head == "3"
    model.watch()
    assert torch.allclose(model(X), model.head(model.features))


def test_logits_that_no_linear_layer_gives_have_no_head():
    model = flat(nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(1)))
    assert model.layout.head is None


def test_an_output_without_logits_is_refused():
    class Odd(nn.Linear):
        def forward(self, x):
            return [super().forward(x)]

    with pytest.raises(BadRequest, match=r"\.logits"):
        flat(Odd(6, 3))


def test_a_twin_has_a_vector_of_its_own():
    model = flat(network())
    twin = model.twin()
    assert torch.equal(twin.vector, model.vector)
    with torch.no_grad():
        twin.vector.zero_()
    assert model.vector.any()
    assert model.intact()
    assert twin.intact()


def test_the_signature_tells_models_apart_and_ignores_values():
    assert flat(network()).layout.signature == flat(network()).layout.signature
    assert flat(network()).layout.signature != flat(nn.Linear(6, 3)).layout.signature
