"""What a task cannot take is refused before round 0, in one sentence that names the value."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.testing.task_table import PROBLEMS, problem

X = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
PICTURES = torch.zeros(10, 1, 4, 4)
NAN = torch.tensor([0.0] * 7 + [float("nan")] * 3)


def refused(call) -> str:
    with pytest.raises(BadRequest) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("task", "client", "words"),
    [
        ("regression", (X, NAN), ["client 0", "NaN", "sample 7"]),
        ("regression", (X, torch.zeros(9)), ["10 samples", "9 targets"]),
        ("regression", (X, torch.zeros(10, 2, 2)), ["(samples, targets)"]),
        ("sequence", (ud.Ragged([[1, 2]], 0), ud.Ragged([[1]], -1)), ["sequence 0", "2 tokens", "1 targets"]),
        (
            "sequence",
            (ud.Ragged([[1, 2]], 0), ud.Ragged([[1, 2]], -9)),
            ["pads its targets with -9", "sequence(pad=-9)"],
        ),
        ("sequence", (X.long(), X), ["whole numbers", "tokens"]),
        (
            "sequence(pad=1)",
            (X.long(), torch.tensor([[2, 1, 1], [2, 1, 3]] * 5)),
            ["pad value 1 is a token", "sample 1"],
        ),
        ("multilabel", (X, torch.full((10, 2), 2)), ["not 0 or 1"]),
        ("segmentation", (PICTURES, torch.zeros(10, 3, 4).long()), ["4×4 pixels", "3×4", "one size"]),
        ("segmentation", (PICTURES, torch.zeros(10).long()), ["one class per pixel"]),
        ("classification", (X, X[:, 0]), ["float32", "regression"]),
    ],
)
def test_targets_that_do_not_fit(task, client, words):
    sentence = refused(lambda: ud.Federation.from_clients([client], task=task))
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("task", "network", "words"),
    [
        ("regression", lambda: nn.Linear(6, 2), ["(2, 2)", "one number per target, here (2, 1)"]),
        ("classification", lambda: nn.Linear(6, 2), ["2 logits", "3 classes"]),
        ("multilabel", lambda: nn.Linear(6, 4), ["(2, 4)", "(2, 3)"]),
        ("sequence", lambda: nn.Embedding(6, 4), ["4)", "all tokens at every place", "5)"]),
        ("segmentation", lambda: nn.Conv2d(1, 2, 3), ["(2, 2, 4, 4)", "(2, 2, 6, 6)"]),
    ],
)
def test_a_network_whose_output_does_not_fit_names_both_shapes(task, network, words):
    sentence = refused(lambda: ud.run("fedavg", problem(task), model=network, out=False))
    assert all(word in sentence for word in words), sentence


def test_a_part_says_what_it_needs_before_round_0():
    for method, task, words in (
        ("fedlc", "regression", "fedlc needs one class per sample, which regression does not have"),
        ("flood", "multilabel", "flood needs logits of classes, which multilabel's output is not"),
        ("aflama", "regression", "right or wrong"),
        ("moon", "segmentation", "one vector per sample"),
    ):
        settings = {"model": PROBLEMS[task][1], "out": False}
        assert words in refused(lambda: ud.run(method, problem(task), **settings))  # noqa: B023


def test_partitions_and_noise_that_need_classes():
    numbers = ud.data.DataSet(
        "prices", X.numpy(), X[:, 0].numpy(), X.numpy(), X[:, 0].numpy(), ("price",), (), (), "", "", task="regression"
    )
    sentence = refused(lambda: ud.federate(numbers, "label_skew(0.5)", clients=2))
    assert "label_skew" in sentence
    assert "target_skew" in sentence
    assert "regression" in refused(lambda: ud.federate(numbers, "iid", clients=2, noise="symmetric(0.2)"))
    assert "confusion" in refused(lambda: ud.run("fedavg", problem("regression"), model=PROBLEMS["regression"][1],
                                                 diagnose="confusion", out=False))  # fmt: skip


@dataclass(frozen=True)
class Odd(ud.Task):
    """A user's task with one mistake."""

    mistake: str = ""
    headline = "error"

    def loss(self, output, y):
        return (output[:, 0] - y).abs().mean() if self.mistake == "loss" else (output[:, 0] - y).abs()

    def measure(self, output, y):
        value = (output[:, 0] - y).abs().mean().item()
        return (
            {"error": "small"} if self.mistake == "metric" else {"else" if self.mistake == "name" else "error": value}
        )


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("loss", ["task odd", "one number per sample"]),
        ("metric", ["task odd", "numbers", "dict"]),
        ("name", ["headline error", "else"]),
    ],
)
def test_a_users_task_is_tried_before_round_0(mistake, words):
    clients = [problem("regression").train(client) for client in range(2)]
    federation = ud.Federation.from_clients(clients, task=Odd(mistake))
    sentence = refused(lambda: ud.run("fedavg", federation, model=PROBLEMS["regression"][1], out=False))
    assert all(word in sentence for word in words), sentence


def test_a_users_task_runs_and_ranks():
    clients = [problem("regression").train(client) for client in range(3)]
    federation = ud.Federation.from_clients(clients, task=Odd())
    result = ud.run("scaffold", federation, model=PROBLEMS["regression"][1], rounds=3, out=False)
    assert result.summary["headline"]["name"] == "error"
    assert result.curve().mean[-1] < result.curve().mean[0]
