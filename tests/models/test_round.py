"""One federated round of every network: the result is the weighted mean, including BatchNorm's statistics."""

from __future__ import annotations

import pytest
import torch

import undrift as ud
from undrift import models
from undrift.engine.inline import Inline

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SHAPES = {
    "logistic": (1, 8, 8), "mlp": (1, 8, 8), "lenet5": GREY, "lenet5-bn": GREY, "cnn": GREY, "cnn-fedbss": GREY, "cnn3": GREY,
}  # fmt: skip
WIDE = ("resnet8", "resnet18", "resnet50", "vgg9", "mobilenetv2")  # seconds each
ROUNDS = [pytest.param(name, marks=pytest.mark.slow if name in WIDE else ()) for name in models.names("sample")]
ROUNDS += ["mlp(8, norm=batch)", "resnet8-thin(norm=group)"]
SIZES = (4, 6)  # weights 0.4 and 0.6


@pytest.mark.parametrize("name", ROUNDS)
def test_the_new_model_is_the_mean_by_size_of_parameters_and_statistics_and_the_maximum_of_counters(name, monkeypatch):
    shape = SHAPES.get(name.partition("(")[0], COLOUR)
    stream = torch.Generator().manual_seed(0)
    clients = [
        (
            torch.randn(n, *shape, generator=stream) + k,
            torch.arange(n) % 3,
            torch.randn(2, *shape),
            torch.tensor([0, 2]),
        )
        for k, n in enumerate(SIZES)
    ]
    trained = []
    work = Inline.work

    def watched(engine, orders):
        for position, reply in work(engine, orders):
            if reply.vector is not None:
                trained.append(reply)
            yield position, reply

    monkeypatch.setattr(Inline, "work", watched)
    result = ud.run("fedavg", ud.Federation.from_clients(clients), model=name, rounds=1, cohort=1.0, epochs=1, batch=4,
                    engine="inline", out=False)  # fmt: skip
    trained.sort(key=lambda reply: reply.client)
    assert [(reply.client, reply.n) for reply in trained] == [(0, 4), (1, 6)]
    mean = (0.4 * trained[0].vector.double() + 0.6 * trained[1].vector.double()).float()
    assert torch.allclose(result.vector, mean, rtol=1e-6, atol=1e-7)
    assert torch.isfinite(result.vector).all()
    assert not torch.equal(trained[0].vector, trained[1].vector)
    state = result.model.state_dict()
    means = [key for key in state if key.endswith("running_mean")]
    assert bool(means) == any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in result.model.modules())
    for key in means:
        assert state[key].abs().max() > 0  # it was 0 before the round
        assert (state[key.replace("mean", "var")] > 0).all()
        # batches of 4 are two for the client of 6 samples, one for that of 4: the maximum of 1 and 2
        assert state[key.replace("running_mean", "num_batches_tracked")] == 2
