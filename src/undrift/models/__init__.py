"""The networks of the papers by name: `build("lenet5", (1, 28, 28), 10)`.

A factory takes the shape of one sample and the number of outputs: classes, tokens or targets. It returns a plain module
from samples to outputs, initialised with PyTorch's default generator (by PyTorch's defaults, `gpt` as GPT-2). The head is the
last layer that is executed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from undrift.core.errors import BadRequest, unknown
from undrift.core.words import clipped
from undrift.models._layers import Misfit, Shape
from undrift.models.cnn import cnn, cnn3, cnn_fedbss, cnn_feddyn, vgg9
from undrift.models.lenet import lenet5, lenet5_bn
from undrift.models.linear import logistic, mlp
from undrift.models.mobilenet import mobilenetv2
from undrift.models.resnet import resnet8, resnet8_thin, resnet18, resnet20, resnet50
from undrift.models.sequence import gpt, lstm
from undrift.models.unet import unet

__all__ = ["build", "default_for", "fitting", "names"]

# Name: factory, and the smallest image side it takes with its default options (0: any shape, also tables).
MODELS: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "logistic": (logistic, 0),
    "mlp": (mlp, 0),
    "lenet5": (lenet5, 12),
    "lenet5-bn": (lenet5_bn, 16),
    "cnn": (cnn, 4),
    "cnn-feddyn": (cnn_feddyn, 16),
    "cnn-fedbss": (cnn_fedbss, 1),
    "cnn3": (cnn3, 8),
    "vgg9": (vgg9, 8),
    "resnet8": (resnet8, 1),
    "resnet8-thin": (resnet8_thin, 1),
    "resnet18": (resnet18, 1),
    "resnet20": (resnet20, 1),
    "resnet50": (resnet50, 1),
    "mobilenetv2": (mobilenetv2, 1),
    "lstm": (lstm, 0),
    "gpt": (gpt, 0),
    "unet": (unet, 4),
}
# What a model gives an output for, where that is not the whole sample; and the model of a run that names none.
PREDICTS = {"lstm": "token", "gpt": "token", "unet": "pixel"}
DEFAULTS = {"sequence": "lstm", "segmentation": "unet"}


def names(predicts: str | None = None) -> list[str]:
    """The models by name: all, or those with one output per "sample", "token" or "pixel"."""
    return [name for name in MODELS if predicts in (None, PREDICTS.get(name, "sample"))]


def fitting(shape: Shape, predicts: str = "sample") -> list[str]:
    """The models that take samples of this shape with their default options. Tokens have the shape (length,) or ()."""
    if predicts == "token":
        return names(predicts) if len(shape) < 2 else []
    side = min(shape[1:]) if len(shape) == 3 else 0
    return [name for name in names(predicts) if MODELS[name][1] <= side]


def build(
    name: str, shape: Shape, classes: int, args: tuple[Any, ...] = (), options: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build the network of this name. `args` and `options` are those of the text `name(value, key=value)`."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    factory = MODELS[name][0]
    options = dict(options or {})
    try:
        inspect.signature(factory).bind(shape, classes, *args, **options)
    except TypeError as error:
        raise BadRequest(f"{name} cannot be built with those options: {error}; it takes {_options(factory)}") from None
    try:
        return factory(tuple(shape), classes, *args, **options)
    except BadRequest:
        raise
    except Misfit:
        size = "×".join(map(str, shape))
        fits = ", ".join(other for other in fitting(tuple(shape)) if other != name)
        raise BadRequest(f"{name} does not fit samples of shape {size}; these do: {fits}") from None
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:  # of a layer's own checks
        said = clipped(" ".join(str(error).split()), 120)
        raise BadRequest(f"{name} cannot be built with those options: {said}; it takes {_options(factory)}") from None


def default_for(dataset_name: str, shape: Shape, task: str = "classification") -> str:
    """The model of a run that names none: lstm for sequences, unet for segmentation; else mlp for tables and images below
    12 pixels, lenet5 for grey, cnn for colour up to 64 pixels, else resnet18."""
    if task in DEFAULTS:
        return DEFAULTS[task]
    if len(shape) != 3 or min(shape[1:]) < MODELS["lenet5"][1]:
        return "mlp"
    if shape[0] == 1:
        return "lenet5"
    return "cnn" if max(shape[1:]) <= 64 else "resnet18"


def described(shape: Shape, classes: int) -> list[dict[str, Any]]:
    """Every model: what it is, its options, and for samples of this shape its trainable parameters and its other numbers
    (frozen parameters and buffers), or None where it does not fit. Nothing is allocated."""
    import torch

    found = []
    for name, (factory, least) in MODELS.items():
        counts: dict[str, int | None] = {"parameters": None, "buffers": None}
        predicts = PREDICTS.get(name, "sample")
        if name in fitting(shape, predicts):
            with torch.device("meta"):
                module = build(name, shape, classes)
            trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
            everything = [*module.parameters(), *module.buffers()]
            counts = {"parameters": trained, "buffers": sum(t.numel() for t in everything) - trained}
        about = (inspect.getdoc(factory) or "").split("\n\n")[0].replace("\n", " ")
        known = {"name": name, "about": about, "predicts": predicts, "least_side": least}
        found.append(known | {"options": _options(factory), **counts})
    return found


def _options(factory: Callable[..., nn.Module]) -> str:
    own = list(inspect.signature(factory).parameters.values())[2:]
    return ", ".join(str(parameter).split(":")[0] for parameter in own) or "none"
