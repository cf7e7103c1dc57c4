"""The options of a run. Their names are the same on the command line, as keywords of `ud.run` and in run.toml."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from undrift.core.errors import BadRequest, unknown
from undrift.core.schema import (
    Count,
    Name,
    Positive,
    Seed,
    Share,
    Text,
    Texts,
    Workers,
    check,
    from_text,
    hints_of,
)
from undrift.core.schema import setting as option
from undrift.core.words import is_unicode, shown

THRESHOLDS = (0.5, 0.8, 0.9, 0.95)  # of a headline that is a share


@dataclass
class Options:
    """The defaults are those of the command line. `None` leaves the choice to the run."""

    method: Text = option("fedavg", "method: names joined by +, the weighting after @ (flood+scaffold@bound)")
    data: Text = option("digits", "name of a data set, a .npz or .csv file, or a folder of images")
    target: Name | None = option(None, "column of a .csv that is predicted; several are joined by commas")
    client_column: Name | None = option(None, "column of a .csv that names the client of every row")
    partition: Text | None = option(
        None,
        "how the samples are split between clients [dirichlet(0.3); natural with --client-column; without classes natural if "
        "the data name clients, else iid]",
    )
    clients: Count | None = option(None, "number of clients [20; natural and by_domain take it from the data]")
    noise: Texts | None = option(
        None,
        "noise, joined by +: symmetric(0.2), pair(0.2), constant(0.2, 0), permute(0.3), gaussian(0.5), replace_tokens(0.1)",
    )
    domains: Texts | None = option(
        None, "feature skew: one image transform per client in turn, as in identity+inverted+rotated(45)"
    )
    faults: Texts | None = option(
        None, "injected faults, joined by +: nan(0.1), drop(0.2), slow(0.3), flip(0.1), scale(0.1, 10)"
    )
    validation: Share = option(0.0, "share of each client's training data held out for validation")
    proxy: Share = option(0.0, "share of the training data given to the server as its proxy set")
    unseen: Share = option(0.0, "share of clients that never train and are evaluated as new clients")
    standardise: Name | None = option(
        None, "constants for the inputs instead of the data set's: mean/deviation, each one number or one per channel, "
        "as in 0.49,0.48,0.45/0.20,0.20,0.20"
    )  # fmt: skip
    model: Text | None = option(None, "network, or package:function that returns one [depends on the data]")
    adapt: Name | None = option(
        None, 'train adapters on a frozen network, as in "lora(rank=8, alpha=16, targets=…)" (extra peft)'
    )
    rounds: Count = option(50, "communication rounds")
    cohort: float | int | None = option(
        None, "clients per round: a share with a decimal point (0.5, 1.0), or a number (10) [0.5]"
    )
    selection: Text = option(
        "uniform",
        "how clients are chosen each round: uniform, all, probability(p), list([…]), cohorts([[…], […]]), "
        "random_sample(seed, cohort) [uniform]",
    )
    epochs: Count = option(2, "local epochs per round")
    batch: Count = option(32, "local batch size")
    optimizer: Literal["sgd", "adam"] = option("sgd", "local optimizer: sgd or adam")
    lr: Positive = option(0.05, "local learning rate")
    momentum: Share = option(0.9, "local momentum")
    weight_decay: Annotated[float, Ge(0)] = option(0.0, "local weight decay")
    lr_decay: Positive = option(1.0, "multiply the learning rate by this after every round")
    clip: Positive | None = option(None, "clip the local gradient to this norm")
    persist_momentum: bool = option(False, "clients keep their momentum between rounds")
    augment: Texts | None = option(None, "augmentation of training images, as in crop+flip")
    task: Text | None = option(
        None,
        "what the network predicts: classification, sequence, regression, multilabel, segmentation, or package:task "
        "[that of the data]",
    )
    loss: Text | None = option(None, "loss: package:function of (output, y), one number per sample [the task's]")
    init: Text | None = option(None, "start from this state dict (.safetensors)")
    sampling: Text | None = option(None, "sampling part, as in --sampling flood")
    objective: Text | None = option(None, "objective part")
    personalize: Text | None = option(None, "personalization part")
    weighting: Text | None = option(None, "weighting part")
    combine: Text | None = option(None, "combining part")
    server: Text | None = option(None, "server update part")
    weight_cap: Annotated[float, Gt(0), Le(1)] | None = option(
        None, "largest share of the weight one client may have in a round [none; 0.5 in a deployment]"
    )
    private: Text | None = option(None, "parameters that never leave a client: norms, head, named(…)")
    upload: Texts | None = option(
        None, "what happens to an update before it leaves, joined by +: dp(noise=1), topk(0.1), quantize(8)"
    )
    uncovered: Literal["refuse", "accept"] = option(
        "refuse", "statistics that dp does not cover: refuse them, or accept a run that uses them"
    )
    stop_at_epsilon: Positive | None = option(None, "stop before the privacy loss ε exceeds this")
    seed: Seed = option(0, "seed of the run, and of the federation unless --data-seed is given")
    data_seed: Seed | None = option(None, "seed of the federation alone")
    evaluate_every: Count = option(5, "evaluate clients (L1, L2) every N rounds and after the last")
    evaluate_clients: Literal["cohort", "all"] | Count = option(
        "cohort", "which clients to evaluate: cohort, a number of clients, or all"
    )
    evaluate_at: Sequence[Count] | None = option(
        None, "evaluate clients after these rounds too, joined by commas, as in 10,25"
    )
    evaluate_on: Literal["both", "own", "validation"] = option(
        "both", "what clients are evaluated on: both their own test slice and the whole test set, own alone, or validation for their "
        "own test slice and their own validation data"
    )  # fmt: skip
    thresholds: Sequence[float] = option(
        THRESHOLDS, "thresholds ε of ρ(ε), the number of clients whose headline is better than ε; none by default where the "
        "headline is no share"
    )  # fmt: skip
    metrics: Texts | None = option(None, "own metrics, joined by commas: package:function of (logits, y)")
    diagnose: Texts | None = option(None, "diagnostics to record, joined by +: gradients, drift, objective, bound, features, embedding, "
                           "cost, landscape, hessian, ood, confusion")  # fmt: skip
    ood: Text | None = option(None, "data set for out-of-distribution detection")
    stop_at: float | None = option(None, "stop when the headline (accuracy, RMSE, …) on validation data reaches this")
    engine: Literal["auto", "inline", "processes", "ray", "flower"] = option(
        "auto", "where clients train: auto, inline, processes, ray"
    )
    workers: Workers | None = option(None, "number of worker processes or Ray actors [one per core]")
    ray_address: Name | None = option(
        None, "address of a Ray cluster, HOST:PORT or auto [RAY_ADDRESS, else a local cluster]"
    )
    device: Name = option("auto", "cpu, cuda, mps or auto")
    lockstep: Name = option(
        "auto", "small clients train together, as one stack: auto, on, off, or on(bytes=33554432) for smaller stacks"
    )
    memory: Annotated[float, Gt(0), Le(1e6)] = option(1.0, "memory budget of the client states in GB")
    out: Text | None = option(None, "folder of the run [runs/DATA-METHOD-N]")
    track: Name | None = option(
        None,
        "also log every round, joined by commas: tensorboard, mlflow, wandb (local files unless you configure them)",
    )
    tolerate: bool = option(False, "leave out a client whose code raises, instead of stopping the run")
    force: bool = option(False, "move an old run in --out aside")

    def __post_init__(self) -> None:
        self.check()

    @property
    def federation_seed(self) -> int:
        return self.seed if self.data_seed is None else self.data_seed

    def check(self) -> None:
        """Refuse values that no run can have, and options that have no effect beside the others."""
        for name, value in check(Options, vars(self), in_file=False, flags=True).items():
            setattr(self, name, value)
        self.thresholds = tuple(self.thresholds)
        self.evaluate_at = None if self.evaluate_at is None else tuple(self.evaluate_at)
        for name in OBJECTS:
            value = getattr(self, name)
            if isinstance(value, str) and not value:
                raise BadRequest(f"--{name.replace('_', '-')} is empty; give a value, or leave it out")
            if isinstance(value, str) and not is_unicode(value):  # run.toml could not hold it
                raise BadRequest(f"--{name.replace('_', '-')} must be a text in UTF-8, not {shown(value)}")
            if value is not None and not isinstance(value, str):
                from undrift.experiment.objects import check_object

                check_object(name, value)
            if value is None and FIELDS[name].default is not None:
                raise BadRequest(f"--{name.replace('_', '-')} must be given; leave it out for {FIELDS[name].default}")
        if self.ray_address is not None and self.engine != "ray":
            raise BadRequest(
                f"--ray-address goes with --engine ray; the engine {self.engine} joins no cluster, so leave it out"
            )
        if self.track is not None:
            from undrift.experiment.tracking import tracker_names

            tracker_names(self.track)
        if self.stop_at is not None and not self.validation:
            raise BadRequest("--stop-at evaluates on validation data, and there is none; add --validation 0.1")


FIELDS = {f.name: f for f in dataclasses.fields(Options)}
HINTS = hints_of(Options)  # of what is typed, and of what run.toml holds
OBJECTS = tuple(name for name, hint in hints_of(Options, in_file=False).items() if hint != HINTS[name])


def from_keywords(given: Mapping[str, Any]) -> Options:
    """Options from keywords; unknown names are refused. Lists and numbers of clients may be given as they are typed."""
    for name in given:
        if name not in FIELDS:
            raise unknown("option", name, FIELDS)
    typed = {
        name: from_text(f"--{name.replace('_', '-')}", HINTS[name], given[name])
        for name in ("thresholds", "evaluate_clients", "evaluate_at")
        if isinstance(given.get(name), str)
    }
    return Options(**{**given, **typed})
