"""The network, loss and augmentation of a run, each tried on two samples before round 0."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undrift import models
from undrift.contract.task import Task
from undrift.core import samples, text
from undrift.core.determinism import DEFAULT_GENERATOR, deterministic
from undrift.core.errors import BadRequest, raised
from undrift.core.in_place import call_on_copies
from undrift.core.modules import module_copy
from undrift.core.references import answer, name_of, reason, resolve
from undrift.core.streams import key
from undrift.core.user_code import user_function
from undrift.core.vector import Flat
from undrift.core.words import clipped, shown
from undrift.experiment.adapting import adapted, freeze, read_tensors
from undrift.experiment.options import Options
from undrift.federation import images
from undrift.federation.environment import augment
from undrift.federation.federation import Federation


def build_network(
    options: Options, federation: Federation, task: Task, freezes: Sequence[str] = ()
) -> tuple[Flat, str]:
    """(the network as one flat vector with its initial values, its name). `freezes` are patterns of parameters that the
    method does not train."""
    with DEFAULT_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(options.seed, "model"))
        module, name = build_module(options, federation)
        module, rest = adapted(module, options, federation)
        freeze(module, freezes)
        flat = flatten(module, chosen_device(options.device), federation, name, task)  # lazy modules draw here
    if rest is not None:
        read_init(flat, rest)
    return flat, name


def read_init(flat: Flat, path: Path) -> None:
    """Start from a file. One without the frozen parameters says which ones it was trained on."""
    state = read_tensors(path)
    base = metadata_of(path).get("base")
    if base is not None and not flat.frozen_names() & set(state) and base != flat.frozen.digest:
        raise BadRequest(
            f"{path} was trained on a base with SHA-256 {base[:16]}…, and the frozen parameters of this model have "
            f"{flat.frozen.digest[:16] or 'none'}…; use the same base"
        )
    flat.read_state_dict(state)


def build_module(options: Options, federation: Federation) -> tuple[nn.Module, str]:
    """(the module, its name). The initial parameters depend on the seed only, or are those of the user's module."""
    given = options.model
    if given is None:
        given = models.default_for(federation.name, federation.shape, federation.task.name)
    if isinstance(given, nn.Module):
        return own_copy(given), type(given).__name__
    if callable(given):
        return call_factory(given, federation), getattr(given, "__name__", "model")
    if not isinstance(given, str):
        raise BadRequest(f"the model is a name, a torch.nn.Module or a function that makes one, not {shown(given)}")
    call = text.parse(given)
    if ":" in call.name:
        return call_factory(user_factory(call), federation), given
    if call.args or call.options:
        refuse_too_large(given, call, federation)
    return models.build(call.name, federation.shape, federation.classes, call.args, call.options), given


def refuse_too_large(given: str, call: text.Call, federation: Federation) -> None:
    """Refuse a network that does not fit in this machine's memory. It is built without memory first, to be counted."""
    with DEFAULT_GENERATOR, torch.random.fork_rng(devices=[]), torch.device("meta"):
        module = models.build(call.name, federation.shape, federation.classes, call.args, call.options)
    numbers = sum(value.numel() for value in module.state_dict().values())
    needs, has = COPIES * 4 * numbers, machine_memory()
    if needs > has:
        raise BadRequest(
            f"the model {shown(given)} has {numbers:,} numbers and needs {needs / 2**30:,.0f} GB of memory, but this machine "
            f"has {has / 2**30:,.0f} GB; use a smaller one"
        )


COPIES = 3  # the least that a run holds: the network, the model that was sent, the gradient


def machine_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def own_copy(module: nn.Module) -> nn.Module:
    """A copy of a user's module. The run trains its module in place, and the next run must start from the user's
    values again. A factory may return the same module every time, so its modules are copied too."""
    try:
        return module_copy(module)
    except Exception as error:
        raise BadRequest(
            f"the model {type(module).__name__} cannot be copied: {error}; give a function that makes it"
        ) from error


def user_factory(call: text.Call) -> Callable[..., Any]:
    """The user's function that makes a network, with the given options: `mine:net(width=200)`."""
    factory = resolve(call.name, "model")
    if call.args:
        raise BadRequest(f"in {text.spell(call)}: give values by their names, as in {call.name}(key=value)")
    if not callable(factory):
        raise BadRequest(f"the model {call.name} is a {type(factory).__name__}, not a function; name a function")
    if call.options:
        text.signature_of(call.name, factory, call.options)
    return functools.partial(factory, **call.options) if call.options else factory


def call_factory(factory: Callable[..., Any], federation: Federation) -> nn.Module:
    """Call a user's function: with (shape, classes) if it takes two arguments, else with none."""
    name = name_of(factory)
    given = factory_arguments(factory, name, federation)
    try:
        module = factory(*given)
    except (Exception, SystemExit) as error:
        raise BadRequest(f"the model {name} could not be made: {raised(error)}") from error
    if not isinstance(module, nn.Module):
        raise BadRequest(f"the model function {name} returned {type(module).__name__}; return a torch.nn.Module")
    return own_copy(module)


def factory_arguments(factory: Callable[..., Any], name: str, federation: Federation) -> tuple[Any, ...]:
    both = (federation.shape, federation.classes)
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some functions that are written in C
        return ()
    needed = [p.name for p in signature.parameters.values() if p.default is p.empty]
    for given in (both, ()) if len(needed) >= 2 else ((),):
        with contextlib.suppress(TypeError):
            signature.bind(*given)
            return given
    raise BadRequest(
        f"the model function {name} wants {', '.join(needed)}; let it take no argument, or the shape of a sample and the "
        "number of classes"
    )


def flatten(module: nn.Module, device: torch.device, federation: Federation, name: str, task: Task) -> Flat:
    """The module as one flat vector; refused if it cannot take the samples, or its output does not fit the task."""
    try:
        flat = Flat(module, images.network_input(federation.x[:2]), device)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(
            f"the model {name} cannot take {federation.name}'s samples of shape {federation.shape}: {reason(error)}; its first "
            "layer must take them"
        ) from error
    trial = Trial(flat, federation)
    if wrong := task.misfit(trial.logits, trial.y, federation.name):
        raise BadRequest(f"the model {name} {wrong}")
    try_training(flat, federation)
    return flat


class Trial:
    """The network's output on two samples. A user's task, loss and metrics are tried on it before round 0."""

    def __init__(self, flat: Flat, federation: Federation) -> None:
        flat.module.eval()
        self.x = images.network_input(federation.x[:2]).to(flat.device)
        with torch.no_grad():
            self.logits = call_on_copies(f"the model {type(flat.module).__name__}", flat, self.x)
        self.y = samples.padded(federation.y[:2]).to(flat.device)


def try_training(flat: Flat, federation: Federation) -> None:
    """Two forward passes in training mode, by a copy of the network: a module may do other things there than in
    evaluation. Equal weights, samples and random numbers must give equal outputs. A module that counts its calls in an
    attribute, or draws from another generator than torch's, gives results that depend on the number of workers."""
    twin, x = flat.twin(), images.network_input(federation.x[:2]).to(flat.device)
    name, outputs = f"the model {type(flat.module).__name__}", list[torch.Tensor]()
    for _ in range(2):
        twin.load(flat.vector, flat.integers())
        twin.module.train()
        with deterministic(0), torch.no_grad():
            try:
                outputs.append(call_on_copies(name, twin, x))
            except BadRequest:
                raise
            except Exception:
                return  # it raises again in a client's round, where the error names client and round
    if (written := flat.frozen.written()) is not None:
        raise BadRequest(
            f"{name} writes into its frozen parameter {written}; keep what changes between calls in a registered buffer"
        )
    if flat.device.type == "cpu" and not torch.equal(*(output.nan_to_num() for output in outputs)):
        raise BadRequest(
            f"{name} gives different outputs for the same weights, samples and random numbers; keep what changes "
            "between calls in a registered buffer, and draw with torch"
        )


def loss(given: Any, trial: Trial, task: Task) -> Callable[..., torch.Tensor]:
    """The task's, or the user's function of (output, y), which must return one number per sample."""
    if given is None:
        return task.loss
    function: Callable[..., torch.Tensor] = (
        user_function("loss", text.parse(given)) if isinstance(given, str) else given
    )
    if not callable(function):
        raise BadRequest(f"a loss is a function of (logits, y), not {shown(given)}")
    try_loss("loss", function, trial)
    return function


def try_loss(what: str, function: Callable[..., Any], trial: Trial) -> None:
    def per_sample(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.shape == (len(trial.y),) and value.is_floating_point()

    must = "one number per sample for (logits, y), as with reduction='none'"
    with torch.no_grad():
        answer(what, function, per_sample, must, trial.logits, trial.y, call=call_on_copies)


def try_task(task: Task, trial: Trial) -> None:
    """A user's task must return one loss per sample, and metrics that are numbers, its headline among them."""
    if type(task).__module__.startswith("undrift."):
        return
    try_loss(f"task {task.name}:", task.loss, trial)

    def metrics(found: Any) -> bool:
        return isinstance(found, dict) and all(isinstance(value, (int, float)) for value in found.values())

    with torch.no_grad():
        must = "a dict of numbers by the names of the metrics"
        found = answer(f"task {task.name}:", task.measure, metrics, must, trial.logits.cpu(), trial.y.cpu())
    if task.headline not in (*found, "loss"):
        raise BadRequest(
            f"the task {task.name} has the headline {task.headline}, which its measure does not return; it returns "
            f"{', '.join(found) or 'nothing'}, and there is always loss"
        )
    if task.better not in ("higher", "lower"):
        raise BadRequest(f"the task {task.name} says better = {task.better!r}; say higher or lower")


def augmentation(given: Any, federation: Federation) -> Any:
    """The augmentation of the options. It works on images in 0…1, so standardised ones are scaled back around it."""
    if given is None or callable(given):
        return given
    if not images.is_image(federation.x):
        raise BadRequest(f"--augment works on images, but {federation.name} is a table; leave it out")
    steps = text.several("augmentation", given, {name: getattr(augment, name) for name in augment.__all__})
    for step in steps:
        if not callable(step):
            raise BadRequest(
                f"--augment {shown(given)} gives {type(step).__name__}, not a function of images; name one, such as flip"
            )
        if isinstance(step, augment.crop):
            step.check(federation.shape)
    whole = steps[0] if len(steps) == 1 else augment.compose(tuple(steps))
    return whole if federation.scale is None else augment.around(whole, *federation.scale)


def chosen_device(name: str) -> torch.device:
    """The device of `--device`; `auto` is cuda if available, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadRequest(
            f"the device {shown(name)} cannot be used: {clipped(str(error).splitlines()[0], 100)}; try --device cpu"
        ) from None
    return device


def metadata_of(path: Path) -> dict[str, str]:
    """The text values in the header of a safetensors file that was read before."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata() or {}
