"""Values that the Python API cannot use: each is refused in one sentence that names it, or simply works."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm

import undrift as ud
from undrift import testing
from undrift.contract.parts import Combine, Weighting
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.modules import module_copy
from undrift.experiment.objects import objects
from undrift.experiment.options import OBJECTS

QUICK = {"rounds": 1, "epochs": 1, "out": False, "engine": "inline"}


@pytest.fixture(scope="module")
def digits():
    return ud.federate("digits", "iid", 4)


@pytest.fixture(scope="module")
def result(digits):
    return ud.run("fedavg", digits, **QUICK)


def test_every_option_that_takes_objects_says_which():
    assert set(OBJECTS) <= set(objects())


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("standardise", [None], r"--standardise must be a text, not \[None\]"),
        ("target", -1, "--target must be a text, not -1"),
        ("client_column", np.int64(3), "--client-column must be a text, not 3"),
        ("method", "\udcff", r"--method must be a text in UTF-8, not '\\udcff'"),
        ("lockstep", "os:environ", r"--lockstep must be auto, on, off or on\(bytes=…\), not 'os:environ'"),
        ("diagnose", "os:environ", "--diagnose must name diagnostics, and 'os:environ' gives a _Environ"),
        (
            "upload",
            "json:JSONDecoder",
            "json:JSONDecoder gives JSONDecoder, and a part of the axis upload belongs here",
        ),
        ("upload", "json:JSONDecoder+topk(0.1)", "gives JSONDecoder, and a part of the axis upload belongs here"),
        ("faults", "json:JSONDecoder", "gives JSONDecoder, not a fault; name one"),
        ("augment", "json:JSONDecoder", "gives JSONDecoder, not a function of images; name one"),
    ],
)
def test_an_option_of_another_kind_is_refused(option, value, sentence):
    with pytest.raises(BadRequest, match=sentence):
        ud.run(**{"data": "digits", "clients": 4, "model": "logistic", **QUICK, option: value})


@pytest.mark.parametrize("run", [None, 3, []])
def test_a_run_is_loaded_by_its_path(run):
    with pytest.raises(BadRequest, match="a run is the path of its folder"):
        ud.load(run)
    with pytest.raises(BadRequest, match="a run is the path of its folder"):
        ud.resume(run)


@pytest.mark.parametrize("client", ["x", None, 1.5, -1, 4, 99, True])
def test_a_client_is_a_number_of_the_federation(digits, result, client):
    for ask in (result.personal, digits.rows):
        with pytest.raises(BadRequest, match=r"there is no client .*; clients are numbered 0 to 3"):
            ask(client)


def test_a_client_may_be_a_numpy_number(digits, result):
    assert np.array_equal(digits.rows(np.int64(1)), digits.rows(1))
    x = digits.test_x[:2].permute(0, 3, 1, 2)
    assert torch.equal(result.personal(np.int64(1))(x), result.personal(1)(x))


def test_a_comparison_has_a_folder(digits):
    with pytest.raises(BadRequest, match="out is the folder of the comparison's runs, not False"):
        ud.compare(["fedavg", "fedprox"], digits, rounds=1, out=False)


@pytest.mark.parametrize("data", [None, 3, 1.5, {"a": 1}, []])
def test_data_are_named(data):
    with pytest.raises(BadRequest, match="data is a name, a path or a DataSet, not"):
        ud.federate(data)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"partition": 3}, "partition is a text such as dirichlet"),
        ({"noise": 0.2}, r"noise is a text such as symmetric\(0.2\), or an object of ud.noise, not 0.2"),
        ({"noise": {"a": 1}}, "noise is a text such as symmetric"),
        ({"seed": "a"}, "seed must be a whole number, not 'a'"),
        ({"seed": 1.5}, "seed must be a whole number, not 1.5"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"clients": "a"}, "a federation needs at least one client, a whole number of them, not 'a'"),
        ({"validation": "a"}, "validation is a share of the training data, 0 ≤ validation < 1, not 'a'"),
        ({"proxy": None}, "proxy is a share of the training data"),
        ({"unseen": "a"}, "unseen is a share of the clients"),
        ({"test_share": "a"}, "test_share is a share of the samples"),
    ],
)
def test_what_federate_cannot_use_is_named(given, sentence):
    with pytest.raises(BadRequest, match=sentence):
        ud.federate("digits", **given)


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        (None, "the partition mine returned NoneType; return a list"),
        (3, "the partition mine returned int; return a list"),
        ([np.arange(4)], "the partition mine returned 1 shards for 2 clients"),
        ([np.arange(4), np.array([3, 10**6])], "the partition mine gave client 1 the row number 1000000, but rows are numbered 0 to 1436"),
        ([np.array([0, -1]), np.arange(4)], "the partition mine gave client 0 the row number -1"),
        ([np.arange(4), np.array([0.5])], "the partition mine gave client 1 no flat array of row numbers"),
        ([np.arange(4), None], "the partition mine gave client 1 no flat array of row numbers"),
    ],
)  # fmt: skip
def test_what_a_partition_returns_is_checked(shards, sentence):
    def mine(labels, clients, generator, groups):
        return shards

    with pytest.raises(BadRequest, match=sentence):
        ud.federate("digits", mine, 2)


def test_a_partition_may_return_plain_lists_and_its_own_error_is_named():
    federation = ud.federate("digits", lambda labels, clients, generator, groups: ([0, 1, 2], [3, 4]), 2)
    assert federation.rows(1).tolist() == [3, 4]

    def broken(labels, clients, generator, groups):
        raise KeyError("mine")

    with pytest.raises(
        BadRequest, match=r"the partition broken failed: KeyError: 'mine' \(line \d+ of test_api_values"
    ):
        ud.federate("digits", broken, 2)


# ---- networks --------------------------------------------------------------------------------------------------


def pruned(layer):
    return prune.l1_unstructured(layer, "weight", 0.3)


def network(wrap, dtype=torch.float32):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old-style weight_norm says that it is old
        return nn.Sequential(nn.Flatten(), wrap(nn.Linear(64, 8)), nn.ReLU(), wrap(nn.Linear(8, 10))).to(dtype)


@pytest.mark.parametrize("wrap", [weight_norm, spectral_norm, pruned])
def test_old_style_reparametrisations_train_and_are_evaluated(digits, wrap):
    net = network(wrap)
    runs = [ud.run("ditto", digits, model=net, **QUICK) for _ in range(2)]
    assert torch.equal(runs[0].vector, runs[1].vector)  # the user's module is not changed
    assert runs[0].accuracy is not None
    x = digits.test_x[:5].permute(0, 3, 1, 2)
    assert runs[0].personal(1)(x).shape == (5, 10)
    if wrap is pruned:
        masked = dict(runs[0].model.named_buffers())["1.weight_mask"]
        assert torch.equal(masked, net[1].weight_mask)
        assert torch.equal(runs[0].model[1].weight[masked == 0], torch.zeros(int((masked == 0).sum())))


def test_a_copy_of_a_reparametrised_module_computes_the_same_and_is_its_own():
    net, x = network(weight_norm), torch.randn(3, 64)
    expected = net(x)
    other = module_copy(net)
    assert torch.equal(other(x), expected)
    with torch.no_grad():
        other[1].weight_g.zero_()
    assert not torch.equal(other(x), expected)
    assert torch.equal(net(x), expected)
    assert net[1].weight.grad_fn is not None


def test_a_network_whose_weight_is_computed_has_no_head(digits):
    with pytest.raises(BadRequest, match="fedrs needs the features that enter the last linear layer"):
        ud.run("fedrs", digits, model=network(pruned), **QUICK)


def test_float64_and_bfloat16_networks_are_held_as_float32(digits):
    plain = network(lambda layer: layer)
    double = ud.run("fedavg", digits, model=network(lambda layer: layer).double(), **QUICK)
    assert torch.equal(double.vector, ud.run("fedavg", digits, model=plain, **QUICK).vector)
    rounded = plain.bfloat16()
    half = ud.run("fedavg", digits, model=network(lambda layer: layer, torch.bfloat16), **QUICK)
    assert torch.equal(half.vector, ud.run("fedavg", digits, model=rounded.float(), **QUICK).vector)
    assert any("bfloat16 and is held as float32" in note for note in half.setup.plan.layout.notes)


class Odd(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(64, 10), change

    def forward(self, x):
        return self.change(self.layer(x.flatten(1)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            torch.mean,
            r"the model Odd returns an output of shape \(\) for 2 samples; return one row of logits per sample",
        ),
        (lambda z: z[:, 0], r"the model Odd returns an output of shape \(2,\) for 2 samples"),
        (lambda z: z[:, :, None], r"the model Odd returns an output of shape \(2, 10, 1\)"),
        (lambda z: (z, z), "the model Odd returns tuple; it must return a tensor of logits"),
        (lambda z: None, "the model Odd returns NoneType; it must return a tensor of logits"),
    ],
)
def test_an_output_that_is_no_logits_is_named_with_its_module(digits, change, sentence):
    with pytest.raises(BadRequest, match=sentence):
        ud.run("fedavg", digits, model=Odd(change), **QUICK)


def raising(shape, classes):
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (lambda width: None, "the model function <lambda> wants width; let it take no argument, or the shape"),
        (lambda a, b, c: None, "the model function <lambda> wants a, b, c; "),
        (lambda *, width: None, "the model function <lambda> wants width; "),
        (Odd, "the model function Odd wants change; "),
        (raising, r"the model raising could not be made: KeyError: 'mine' \(line \d+ of test_api_values.py\)"),
        (lambda: 3, "the model function <lambda> returned int; return a torch.nn.Module"),
        (3, "the model is a name, a torch.nn.Module or a function that makes one, not 3"),
    ],
)
def test_a_factory_that_cannot_be_called_or_raises_is_named(digits, factory, sentence):
    with pytest.raises(BadRequest, match=sentence):
        ud.run("fedavg", digits, model=factory, **QUICK)


# ---- parts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mine(Weighting):
    what: str = "none"

    def weights(self, server, replies):
        if self.what == "raise" and server.round == 1:
            raise KeyError("no such thing")
        values = {"none": None, "list": [1.0] * len(replies), "few": torch.ones(2), "flat": torch.ones(4, 2)}
        return values.get(self.what, torch.ones(len(replies)))


@pytest.mark.parametrize(
    ("what", "returned"),
    [("none", "NoneType"), ("list", "list"), ("few", r"a tensor of shape \(2,\)"), ("flat", r"a tensor of shape \(4, 2\)")],
)  # fmt: skip
def test_weights_of_the_wrong_kind_name_the_part_and_the_round(what, returned):
    sentence = f"in round 0: weighting.mine returned {returned} from weights; it must return a tensor of 4 numbers"
    with pytest.raises(RunFailed, match=sentence):
        testing.run_parts(Mine(what), testing.tiny())


def test_a_part_that_raises_is_named_with_its_round_and_its_own_traceback():
    with pytest.raises(RunFailed) as caught:
        testing.run_parts(Mine("raise"), testing.tiny())
    said = str(caught.value)
    assert said.startswith("in round 1: weighting.mine failed in weights: KeyError: 'no such thing'\n\nTraceback")
    frames = [line for line in said.splitlines() if line.lstrip().startswith("File ")]
    assert len(frames) == 1  # the part's own, none of ours
    assert "test_api_values.py" in frames[0]


def test_a_combine_that_returns_no_vector_is_named():
    @dataclass(frozen=True)
    class Half(Combine):
        def combine(self, server, replies, weights):
            return replies.vectors[0][:3]

    with pytest.raises(RunFailed, match=r"in round 0: combine.half returned a tensor of shape \(3,\) from combine"):
        testing.run_parts(Half(), testing.tiny())


def test_a_cohort_of_thousands_of_digits_is_refused_in_a_sentence():
    with pytest.raises(
        BadRequest, match=r"a cohort of a number of 5,001 digits clients is more than the 4 there are; lower it"
    ):
        ud.run("fedavg", data="digits", clients=4, cohort=10**5000, out=False)
