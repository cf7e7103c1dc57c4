"""`--adapt`: a network whose body is frozen, with small adapters that are trained instead. They are those of `peft`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from undrift.contract.parameters import Range, check_parameters
from undrift.core import text
from undrift.core.errors import BadRequest, unknown

NAME = "default"  # peft's name of an adapter


@dataclass(frozen=True)
class lora:  # noqa: N801
    """LoRA (Hu et al.: LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022): W + (alpha/rank)·B·A in every
    target, with W frozen, A drawn at random and B zero at first. `targets` are names or shell patterns of layers, by default
    all linear layers but the one that gives the output. `train` are patterns of parameters that are trained beside the
    adapters, such as a new head. `merged` adds the buffer of a second tree to every target, which `flora` needs."""

    rank: Annotated[int, Range(least=1)] = 8
    alpha: Annotated[float, Range(above=0)] = 16.0
    targets: str | Sequence[str] | None = None
    train: str | Sequence[str] | None = None
    dropout: Annotated[float, Range(least=0, below=1)] = 0.0
    merged: bool = False

    name: ClassVar[str] = "lora"

    def __post_init__(self) -> None:
        check_parameters(self)
        for name in ("targets", "train"):  # a list and a tuple say the same
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))

    def __call__(self, module: nn.Module, head: str | None) -> nn.Module:
        """The module with adapters. `head` is the layer that gives the output."""
        peft = imported()
        names = chosen(module, patterns(self.targets), head)
        most = max(max(module.get_submodule(name).weight.shape[:2]) for name in names)  # type: ignore[index]
        if self.rank > most:
            raise BadRequest(
                f"lora has rank {self.rank}, and no target has more than {most} inputs or outputs; lower it"
            )
        config = peft.LoraConfig(
            r=self.rank, lora_alpha=self.alpha, lora_dropout=self.dropout,
            target_modules="|".join(map(re.escape, names)),
        )  # fmt: skip
        try:
            adapted: nn.Module = peft.inject_adapter_in_model(config, module, adapter_name=NAME)
        except Exception as error:
            raise BadRequest(f"peft cannot adapt {', '.join(names[:3])}: {str(error).splitlines()[0]}") from error
        for parameter in adapted.parameters():
            parameter.requires_grad_(False)
        for name, parameter in adapted.named_parameters():
            if ".lora_" in name:
                parameter.data = parameter.data.float()
                parameter.requires_grad_(True)
        train_also(adapted, patterns(self.train))
        if self.merged:
            for name in names:
                add_merged(adapted.get_submodule(name), name)
        return adapted


ADAPTERS = {"lora": lora}


def adapter_of(given: str) -> Any:
    """`lora(rank=8)` as an object, refused with the name that is wrong. Code of a user's own is not imported here."""
    call = text.parse(given)
    if call.name not in ADAPTERS:
        raise unknown("adapter", call.name, ADAPTERS)
    return text.build("adapter", call, ADAPTERS)


def imported() -> Any:
    try:
        import peft
    except ImportError:
        raise BadRequest("--adapt needs peft, which is not installed: pip install 'undrift[peft]'") from None
    return peft


def patterns(given: str | Sequence[str] | None) -> list[str] | None:
    return [given] if isinstance(given, str) else None if given is None else list(given)


def chosen(module: nn.Module, wanted: list[str] | None, head: str | None) -> list[str]:
    """The full names of the layers that get an adapter. A pattern fits a layer's full name or the last part of it."""
    layers = {name: child for name, child in module.named_modules() if is_layer(child)}
    if wanted is None:
        names = [name for name, child in layers.items() if name != head and not isinstance(child, nn.Embedding)]
        if not names:
            raise BadRequest("the model has no linear layer before its head; name the layers, as in lora(targets=fc*)")
        return names
    for pattern in wanted:
        if not any(fits(name, pattern) for name in layers):
            raise BadRequest(
                f"no layer of the model that can have an adapter fits {pattern!r}; choose from {', '.join(list(layers)[:8])} …"
            )
    return [name for name in layers if any(fits(name, pattern) for pattern in wanted)]


def fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)


def is_layer(child: nn.Module) -> bool:
    """Whether peft has an adapter of two factors for it. transformers' Conv1D is a linear layer."""
    return isinstance(child, (nn.Linear, nn.Conv2d)) or type(child).__name__ == "Conv1D"


def train_also(module: nn.Module, wanted: list[str] | None) -> None:
    parameters = dict(module.named_parameters())
    for pattern in wanted or ():
        names = [name for name in parameters if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not names:
            raise BadRequest(
                f"no parameter of the model fits train={pattern!r}; choose from {', '.join(list(parameters)[:8])} …"
            )
        for name in names:
            parameters[name].requires_grad_(True)


def add_merged(layer: Any, name: str) -> None:
    """A buffer M beside the factors, and s·M·x added to what the layer gives."""
    a, b = layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
    if a.dim() != 2:
        raise BadRequest(f"lora(merged=true) is for linear layers, and {name} is a convolution; name the targets")
    layer.register_buffer("lora_merged", torch.zeros(b.shape[0], a.shape[1]))
    layer.register_forward_hook(with_merged)


def with_merged(layer: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
    x = args[0].to(layer.lora_merged.dtype)
    return out + (layer.scaling[NAME] * F.linear(x, layer.lora_merged)).to(out.dtype)
