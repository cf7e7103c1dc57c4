"""From options to everything a run needs: federation, network, method, plan, and the checks before round 0."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undrift import models, selection, text
from undrift.compose import Method, method
from undrift.context import Plan
from undrift.environment import faults
from undrift.errors import BadRequest, unknown
from undrift.evaluate.asked import diagnostics, own_metrics
from undrift.federation import Federation, federate
from undrift.options import Options
from undrift.parts import AXES, defines
from undrift.site import Site, cross_entropy
from undrift.streams import key
from undrift.vector import Flat


@dataclass
class Setup:
    options: Options
    federation: Federation
    method: Method
    plan: Plan
    site: Site
    selection: selection.Selection
    model_name: str
    said: list[str]  # what the user should know before round 0
    faults: list[Any]


def prepare(options: Options, federation: Federation | None = None, parts: list[str] | None = None) -> Setup:
    federation = federation or dealt(options)
    if options.unseen and not federation.unseen:
        raise BadRequest("who is unseen is decided when a federation is made; give unseen to federate or from_clients")
    module, model_name = network(options, federation)
    device = chosen_device(options.device)
    sample = federation.x[:2].permute(0, 3, 1, 2) if federation.x.dim() == 4 else federation.x[:2]
    flat = flattened(module, sample, device, federation, model_name)
    if options.init is not None:
        flat.read_state_dict(read_tensors(Path(options.init)))
    composed = composition(options, parts)
    chosen = chooser(options, federation.clients)
    lacks = set() if options.optimizer == "sgd" and not options.persist_momentum else {"a"}
    if composed.one("personalize") is not None and defines(composed.one("personalize"), "trains"):
        lacks.add("a")
    lacks |= {"proxy"} if federation.proxy() is None else set()
    lacks |= {"features"} if flat.layout.head is None else set()
    plan = Plan(
        rounds=options.rounds, epochs=options.epochs, batch=options.batch, lr=options.lr, lr_decay=options.lr_decay,
        optimizer=options.optimizer, momentum=options.momentum, weight_decay=options.weight_decay, clip=options.clip,
        persist_momentum=options.persist_momentum, seed=options.seed, clients=federation.clients,
        total=federation.total, classes=federation.classes, layout=flat.layout, method=composed,
        engine=options.engine, lacks=frozenset(lacks), cohort=expected_cohort(chosen, federation.clients),
        keep_held=options.evaluate_clients != "cohort",
    )  # fmt: skip
    composed = composed.resolve(plan)
    names = composed.private_names(flat.layout)
    plan = replace(
        plan, method=composed, private=composed.private_mask(flat.layout),
        private_integers=frozenset(names & set(flat.layout.integers)),
    )  # fmt: skip
    said = [*composed.said, *flat.layout.notes]
    if share := federation.record.get("test_share"):
        said.append(f"{federation.name} has no test part: {share:.0%} of every client's samples are held out as one")
    if lifted := federation.record.get("repaired"):
        said.append(f"the partition left {lifted} clients with too few samples: they got some of the largest clients'")
    for problem in composed.check(plan):
        if problem.level == "error":
            raise BadRequest(problem.sentence)
        said.append(problem.sentence)
    loss = cross_entropy if options.loss is None else checked_loss(options.loss, flat, federation)
    site = Site(plan, federation, flat, loss, augmentation(options.augment, federation),
                own_metrics(options.metrics, flat, federation))  # fmt: skip
    site.diagnostics = diagnostics(options.diagnose, options.ood, site)
    return Setup(options, federation, composed, plan, site, chosen, model_name, said, faults_of(options.faults))


def dealt(options: Options) -> Federation:
    """The federation that the options ask for."""
    return federate(
        options.data, options.partition, options.clients, noise=options.noise, domains=options.domains,
        validation=options.validation, proxy=options.proxy, unseen=options.unseen, seed=options.federation_seed,
    )  # fmt: skip


def composition(options: Options, parts: list[str] | None) -> Method:
    """The method of the options: a text, a Method, a part, a list of them, or the resolved parts of a run.toml."""
    axes = [(axis, getattr(options, axis)) for axis in AXES if getattr(options, axis) is not None]
    axes = [(axis, text.part(axis, given) if isinstance(given, str) else given) for axis, given in axes]
    if parts is not None:  # complete, defaults included: they give way to what is named beside them
        return method(
            Method(str(options.method), tuple(text.part(*axis_and_rest(words)) for words in parts)), axes=axes
        )
    given = options.method
    if isinstance(given, str) and ":" in given and "(" not in given:
        given = imported(given, "method")()
    pieces = list(given) if isinstance(given, (list, tuple)) else [given]
    return method(*pieces, axes=axes)


def axis_and_rest(words: str) -> tuple[str, text.Call]:
    call = text.parse(words)
    axis, _, name = call.name.partition(".")
    if axis not in AXES or not name:
        raise BadRequest(f"a part of run.toml is written axis.name(…), not {words!r}")
    return axis, replace(call, name=name)


def network(options: Options, federation: Federation) -> tuple[nn.Module, str]:
    """The module with its initial parameters, which depend on the seed and on nothing else."""
    given = options.model or models.default_for(federation.name, federation.shape)
    if isinstance(given, nn.Module):
        return given, type(given).__name__
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key(options.seed, "model"))
        if callable(given):
            return made(given, federation), getattr(given, "__name__", "model")
        if ":" in given and "(" not in given:
            return made(imported(given, "model"), federation), given
        call = text.parse(given)
        return models.build(call.name, federation.shape, federation.classes, call.args, call.options), given


def made(factory: Callable[..., Any], federation: Federation) -> nn.Module:
    """Call a user's factory with (shape, classes) if it takes them."""
    takes = len([p for p in inspect.signature(factory).parameters.values() if p.default is p.empty])
    module = factory(federation.shape, federation.classes) if takes >= 2 else factory()
    if not isinstance(module, nn.Module):
        raise BadRequest(f"the model's function returned {type(module).__name__}, not a torch.nn.Module")
    return module


def flattened(module: nn.Module, sample: torch.Tensor, device: torch.device, federation: Federation, name: str) -> Flat:
    try:
        flat = Flat(module, sample, device)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(
            f"the model {name} cannot take {federation.name}'s samples of shape {federation.shape}: {error}"
        ) from error
    with torch.no_grad():
        flat.module.eval()
        classes = flat(sample.to(device)).shape[-1]
    if classes < federation.classes:
        raise BadRequest(
            f"the model {name} gives {classes} logits and {federation.name} has {federation.classes} classes; let it give as many"
        )
    return flat


def imported(name: str, what: str) -> Any:
    package, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise BadRequest(f"the {what} {name!r} cannot be imported: {error}") from None
    if not hasattr(module, function):
        raise unknown(f"function of {package}", function, [n for n in dir(module) if not n.startswith("_")])
    return getattr(module, function)


def checked_loss(given: Any, flat: Flat, federation: Federation) -> Callable[..., torch.Tensor]:
    loss = imported(given, "loss") if isinstance(given, str) else given
    with torch.no_grad():
        sample = federation.x[:2].permute(0, 3, 1, 2) if federation.x.dim() == 4 else federation.x[:2]
        value = loss(flat(sample.to(flat.device)), federation.y[:2].to(flat.device))
    if not isinstance(value, torch.Tensor) or value.shape != (len(sample),):
        raise BadRequest("the loss must return one number per sample; use reduction='none'")
    return loss


def augmentation(given: Any, federation: Federation) -> Any:
    """Augmentations work on pictures in 0…1; what the network sees is standardised."""
    if given is None or callable(given):
        return given
    if federation.x.dim() != 4:
        raise BadRequest(f"--augment changes pictures, but {federation.name} is a table; leave it out")
    from undrift.environment import augment

    steps = text.several("augmentation", given, {name: getattr(augment, name) for name in augment.__all__})
    whole = steps[0] if len(steps) == 1 else augment.compose(tuple(steps))
    return whole if federation.scale is None else augment.around(whole, *federation.scale)


def faults_of(given: Any) -> list[Any]:
    """`nan(0.1)+drop(0.2)`, a fault, or a list of them."""
    return text.several("fault", given, {name: getattr(faults, name) for name in faults.__all__})


def chooser(options: Options, clients: int) -> selection.Selection:
    given = options.selection
    call = text.parse(given) if isinstance(given, str) else None
    if call is not None and call.name == "uniform":
        uniform = (
            selection.Uniform(*call.args, **call.options)
            if call.args or call.options
            else selection.Uniform(0.5 if options.cohort is None else options.cohort)
        )
        if options.cohort not in (None, uniform.cohort):
            raise BadRequest(f"--cohort {options.cohort} and --selection {given} name two cohorts; give one of them")
        uniform.size(clients)
        return uniform
    if options.cohort is not None:
        raise BadRequest(f"--cohort goes with --selection uniform; {given} says itself who takes part")
    chosen = text.build("selection", call, selection.NAMES) if call is not None else given
    if isinstance(chosen, selection.List):
        chosen.choose(None, clients)  # type: ignore[arg-type]
    return chosen


def expected_cohort(chosen: selection.Selection, clients: int) -> float | None:
    if isinstance(chosen, selection.Uniform):
        return chosen.size(clients)
    if isinstance(chosen, selection.Probability):
        return chosen.p * clients
    if isinstance(chosen, selection.List):
        return len(set(chosen.clients))
    return clients if isinstance(chosen, selection.All) else None


def chosen_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadRequest(f"the device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    import safetensors.torch

    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise BadRequest(f"there is no file {path} to start from") from None
    except Exception as error:
        raise BadRequest(
            f"{path} is not a safetensors file: {error}; save the state dict with safetensors.torch.save_file"
        ) from None
