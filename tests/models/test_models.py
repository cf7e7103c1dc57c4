"""Every network: its parameter count as published, forward and backward, and which shapes it takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undrift import models
from undrift.core.errors import BadRequest

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "args", "options", "count"),
    [
        # the counts of the papers
        ("lenet5", GREY, 10, (), {}, 61_706),
        ("cnn", GREY, 10, (), {}, 1_663_370),
        ("cnn", GREY, 10, (), {"padded": False}, 582_026),
        ("lenet5-bn", GREY, 10, (), {}, 348_874),
        ("cnn3", GREY, 10, (), {}, 688_586),
        ("vgg9", COLOUR, 10, (), {}, 3_512_650),
        ("resnet8", COLOUR, 10, (), {}, 4_896_394),
        ("resnet8", COLOUR, 100, (), {}, 4_942_564),
        ("mobilenetv2", COLOUR, 10, (), {}, 2_254_858),
        ("mobilenetv2", COLOUR, 100, (), {}, 2_370_148),
        # by hand: 784·200 + 200 + 200·100 + 100 + 100·10 + 10, and so on
        ("mlp", GREY, 10, (200, 100), {}, 178_110),
        ("mlp", GREY, 10, (200, 200), {}, 199_210),
        ("mlp", GREY, 10, (100, 100), {}, 89_610),
        ("mlp", (1, 8, 8), 10, (), {}, 64 * 100 + 100 + 1010),
        ("logistic", (1, 8, 8), 10, (), {}, 650),
        ("cnn-feddyn", COLOUR, 10, (), {}, 797_962),
        ("cnn-fedbss", GREY, 10, (), {}, 1_663_370),
        # McMahan's at 3×32×32 plus the extra convolution: 2,432 + 51,264 + 36,928 + 4096·512 + 512 + 5,130
        ("cnn", COLOUR, 10, (), {}, 2_193_418),
        ("cnn", COLOUR, 10, (), {"extra": False}, 2_193_418 - 36_928),
        # the published ImageNet networks
        ("resnet18", (3, 224, 224), 1000, (), {}, 11_689_512),
        ("resnet50", (3, 224, 224), 1000, (), {}, 25_557_032),
        ("resnet18", COLOUR, 10, (), {"stem": "cifar"}, 11_173_962),
        ("resnet20", COLOUR, 10, (), {}, 272_474),
        ("resnet8-thin", COLOUR, 10, (), {}, 78_042),
        ("resnet8-thin", COLOUR, 10, (), {"width": 8}, 19_954),
        # LEAF's 817,872 (80·8 + 4·256·(8 + 256 + 1) + 4·256·(256 + 256 + 1) + 256·80 + 80) and PyTorch's second biases
        ("lstm", (80,), 80, (), {}, 817_872 + 2 * 4 * 256),
        # FedOpt's network for Shakespeare, with 90 tokens, has 820,522
        ("lstm", (80,), 90, (), {}, 820_522 + 2 * 4 * 256),
        ("lstm", (5,), 7, (), {"embedding": 3, "width": 4, "layers": 1}, 7 * 3 + 16 * (3 + 4 + 2) + 7 * 5),
        # tokens and places 64·(76 + 80), two blocks of 12·64² + 13·64, the last norm, the head without bias
        ("gpt", (80,), 76, (), {}, 64 * 156 + 2 * (12 * 64**2 + 13 * 64) + 128 + 76 * 64),
        ("gpt", (), 76, (), {"tied": True, "context": 80}, 64 * 156 + 2 * (12 * 64**2 + 13 * 64) + 128),
    ],
)
def test_parameter_counts(name, shape, classes, args, options, count):
    assert parameters(models.build(name, shape, classes, args, options)) == count


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "options", "count"),
    [
        ("gpt", (1024,), 50_257, {"layers": 12, "width": 768, "heads": 12, "tied": True}, 124_439_808),  # GPT-2
        ("unet", (1, 64, 64), 2, {"width": 64, "depth": 4, "norm": "none"}, 31_030_658),  # the first U-Net
    ],
)
def test_published_counts_of_networks_that_are_too_large_to_build_here(name, shape, outputs, options, count):
    with torch.device("meta"):
        assert parameters(models.build(name, shape, outputs, (), options)) == count


NORMED = ["lenet5-bn", "cnn3", "vgg9", "resnet8", "resnet8-thin", "resnet18", "resnet20", "resnet50", "mobilenetv2"]
WIDE = {"resnet8", "resnet18", "resnet50", "vgg9", "mobilenetv2"}  # slow on one core: one shape is enough


TRIED = [
    (name, shape)
    for shape in (GREY, COLOUR, (1, 8, 8))
    for name in models.fitting(shape)
    if name not in WIDE or shape == COLOUR
]


@pytest.mark.parametrize(("name", "shape"), TRIED, ids=str)
def test_forward_and_backward_reach_every_parameter(name, shape):
    model = models.build(name, shape, 7)
    logits = model(torch.randn(4, *shape))
    assert logits.shape == (4, 7)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", NORMED)
def test_group_norm_replaces_batch_norm_without_changing_the_count(name):
    shape = GREY if name in ("lenet5-bn", "cnn3") else COLOUR
    batch, group = (models.build(name, shape, 10, (), {"norm": norm}) for norm in ("batch", "group"))
    assert any(isinstance(module, nn.BatchNorm2d) for module in batch.modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in group.modules())
    assert parameters(batch) == parameters(group)
    assert not list(group.buffers())
    group.eval()
    with torch.no_grad():
        x = torch.randn(2, *shape)
        assert torch.allclose(group(x)[:1], group(x[:1]), atol=1e-4)  # a sample does not depend on its batch


def test_mlp_takes_norm_and_dropout():
    model = models.build("mlp", (1, 8, 8), 10, (64, 32), {"norm": "batch", "dropout": 0.2})
    kinds = [type(module).__name__ for module in model]
    assert kinds == ["Flatten", *["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 2, "Linear"]
    group = models.build("mlp", (1, 8, 8), 10, (100,), {"norm": "group"})
    assert group(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    assert models.build("mlp", (13,), 2)(torch.randn(3, 13)).shape == (3, 2)


@pytest.mark.parametrize("name", models.names("sample"))
def test_the_head_is_the_last_layer_executed(name):
    shape = COLOUR
    model = models.build(name, shape, 5).eval()
    executed = []
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda module, given, out: executed.append((module, out)))
    with torch.no_grad():
        logits = model(torch.zeros(1, *shape))
    module, out = executed[-1]
    assert isinstance(module, nn.Linear)
    assert module.out_features == 5
    assert torch.equal(out, logits)


@pytest.mark.parametrize("name", [name for name in models.names("sample") if name not in WIDE | {"resnet20"}])
def test_fitting_models_build_and_the_others_are_refused(name):
    for side in range(1, 20):
        shape = (1, side, side)
        if name in models.fitting(shape):
            with torch.no_grad():
                assert models.build(name, shape, 3).eval()(torch.zeros(1, *shape)).shape == (1, 3)
        else:
            with pytest.raises(
                BadRequest, match=f"{name} does not fit samples of shape 1×{side}×{side}; these do: .*mlp"
            ):
                models.build(name, shape, 3)


@pytest.mark.parametrize("name", models.names("token"))
def test_what_follows_a_token_does_not_change_its_logits(name):
    """So padding at the end changes nothing, whatever its value."""
    model = models.build(name, (11,), 9).eval()
    x = torch.randint(0, 9, (3, 11))
    cut = x.clone()
    cut[:, 7:] = -1
    with torch.no_grad():
        logits, short, padded = model(x), model(x[:, :7]), model(cut)
    assert logits.shape == (3, 11, 9)
    assert torch.allclose(logits[:, :7], short, atol=1e-6)
    assert torch.allclose(padded[:, :7], short, atol=1e-6)
    assert not torch.allclose(logits[:, 7:], padded[:, 7:], atol=1e-6)
    model(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(3, 24, 24), (1, 13, 21), (3, 4, 4)], ids=str)
@pytest.mark.parametrize("norm", ["group", "batch", "none"])
def test_unet_gives_logits_for_every_pixel_of_any_side(shape, norm):
    model = models.build("unet", shape, 5, (), {"norm": norm, "width": 4})
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 5, *shape[1:])
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_every_task_has_a_default_model():
    assert models.default_for("any", (80,), "sequence") == "lstm"
    assert models.default_for("any", (3, 24, 24), "segmentation") == "unet"
    assert models.default_for("any", (10,), "regression") == "mlp"
    assert models.default_for("any", (3, 24, 24), "multilabel") == "cnn"


def test_lenet_on_digits_names_those_that_fit():
    with pytest.raises(BadRequest, match=r"lenet5 does not fit samples of shape 1×8×8; these do: logistic, mlp, cnn,"):
        models.build("lenet5", (1, 8, 8), 10)
    with pytest.raises(BadRequest, match="cnn does not fit samples of shape 20; these do: logistic, mlp"):
        models.build("cnn", (20,), 10)
    with pytest.raises(BadRequest, match="cnn does not fit samples of shape 1×8×8"):
        models.build("cnn", (1, 8, 8), 10, (), {"padded": False})


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_a_token_beyond_the_table_is_named(name):
    network = models.build(name, (3,), 5)
    padded = network(torch.tensor([[4, 0, -1]]))  # below 0 is padding
    assert padded.shape == (1, 3, 5)
    with pytest.raises(
        BadRequest, match=rf"{name} has the tokens 0…4, and a sequence holds 7; pad with a number below 0"
    ):
        network(torch.tensor([[4, 7, 0]]))


@pytest.mark.parametrize(
    ("name", "args", "options", "reason"),
    [
        ("lenet", (), {}, "unknown model 'lenet'; did you mean lenet5"),
        ("gpt", (2, 64, 4), {}, "gpt does not fit samples of shape 1×28×28; these do: logistic, mlp"),
        ("lstm", (), {}, "lstm does not fit samples of shape 1×28×28"),
        ("unet", (), {"depth": 5}, "unet does not fit samples of shape 1×28×28"),
        ("unet", (0,), {}, "width of unet must be a whole number of at least 1, not 0"),
        ("unet", (), {"norm": "layer"}, "norm of unet must be batch or group or none"),
        ("lenet5", (), {"norm": "group"}, r"unexpected keyword argument 'norm'.*it takes activation"),
        ("lenet5", (), {"activation": "gelu"}, "activation of lenet5 must be relu or tanh"),
        ("logistic", (3,), {}, "it takes none"),
        ("mlp", (0,), {}, "widths of mlp"),
        ("mlp", (2.5,), {}, "widths of mlp"),
        ("mlp", (), {"dropout": 1.0}, "dropout of mlp"),
        ("mlp", (), {"norm": "layer"}, "norm of mlp must be batch or group or none"),
        ("resnet8", (), {"norm": None}, "norm of resnet8 must be batch or group, not None"),
        ("resnet18", (), {"stem": "tiny"}, "stem of resnet18"),
    ],
)
def test_bad_options_are_one_sentence(name, args, options, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        models.build(name, GREY, 10, args, options)
    assert "\n" not in str(caught.value)


def test_defaults_by_data_set():
    assert models.default_for("digits", (1, 8, 8)) == "mlp"
    assert models.default_for("mnist", GREY) == "lenet5"
    assert models.default_for("usps", (1, 16, 16)) == "lenet5"
    assert models.default_for("cifar-10", COLOUR) == "cnn"
    assert models.default_for("a table", (13,)) == "mlp"
    for shape in ((1, 8, 8), GREY, COLOUR, (13,), (3, 64, 64), (3, 224, 224), (1, 12, 40)):
        assert models.default_for("any", shape) in models.fitting(shape)


def test_the_same_seed_builds_the_same_network():
    def built():
        torch.manual_seed(3)
        return nn.utils.parameters_to_vector(models.build("lenet5", GREY, 10).parameters())

    assert torch.equal(built(), built())


def test_the_lenet_of_1998_has_the_same_parameters():
    old = models.build("lenet5", GREY, 10, (), {"activation": "tanh"})
    assert parameters(old) == 61_706
    assert any(isinstance(module, nn.AvgPool2d) for module in old)
    assert parameters(models.build("lenet5", (1, 32, 32), 10)) == 61_706  # the original's 32×32, not padded
