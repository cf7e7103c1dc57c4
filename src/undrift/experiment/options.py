"""The options of a run. Their names are the same on the command line, as keywords of `ud.run` and in run.toml."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass, field
from typing import Any

from undrift.core.errors import BadRequest, unknown


def option(default: Any, help: str, flag: str | None = None) -> Any:
    return field(default=default, metadata={"help": help, "flag": flag})


@dataclass
class Options:
    """The defaults are those of the command line. `None` leaves the choice to the run."""

    method: Any = option("fedavg", "method: names joined by +, the weighting after @ (flood+scaffold@bound)")
    data: Any = option("digits", "name of a data set, a .npz file, or a folder of images")
    partition: Any = option("dirichlet(0.3)", "how the samples are split between clients")
    clients: int | None = option(None, "number of clients [20; natural and by_domain take it from the data]")
    noise: Any = option(None, "label noise, joined by +: symmetric(0.2), pair(0.2), constant(0.2, 0), permute(0.3)")
    domains: Any = option(
        None, "feature skew: one image transform per client in turn, as in identity+inverted+rotated(45)"
    )
    faults: Any = option(
        None, "injected faults, joined by +: nan(0.1), drop(0.2), slow(0.3), flip(0.1), scale(0.1, 10)"
    )
    validation: float = option(0.0, "share of each client's training data held out for validation")
    proxy: float = option(0.0, "share of the training data given to the server as its proxy set")
    unseen: float = option(0.0, "share of clients that never train and are evaluated as new clients")
    model: Any = option(None, "network, or package:function that returns one [depends on the data]")
    rounds: int = option(50, "communication rounds")
    cohort: float | int | None = option(
        None, "clients per round: a share with a decimal point (0.5, 1.0), or a number (10) [0.5]"
    )
    selection: Any = option(
        "uniform", "how clients are chosen each round: uniform, all, probability(p), list([…]) [uniform]"
    )
    epochs: int = option(2, "local epochs per round")
    batch: int = option(32, "local batch size")
    optimizer: str = option("sgd", "local optimizer: sgd or adam")
    lr: float = option(0.05, "local learning rate")
    momentum: float = option(0.9, "local momentum")
    weight_decay: float = option(0.0, "local weight decay")
    lr_decay: float = option(1.0, "multiply the learning rate by this after every round")
    clip: float | None = option(None, "clip the local gradient to this norm")
    persist_momentum: bool = option(False, "clients keep their momentum between rounds")
    augment: Any = option(None, "augmentation of training images, as in crop+flip")
    loss: Any = option(None, "loss: package:function of (logits, y), one number per sample [cross-entropy]")
    init: Any = option(None, "start from this state dict (.safetensors)")
    sampling: Any = option(None, "sampling part, as in --sampling flood")
    objective: Any = option(None, "objective part")
    personalize: Any = option(None, "personalization part")
    weighting: Any = option(None, "weighting part")
    combine: Any = option(None, "combining part")
    server: Any = option(None, "server update part")
    weight_cap: float | None = option(
        None, "largest share of the weight one client may have in a round [none; 0.5 in a deployment]"
    )
    private: Any = option(None, "parameters that never leave a client: norms, head, named(…)")
    upload: Any = option(
        None, "what happens to an update before it leaves, joined by +: dp(noise=1), topk(0.1), quantize(8)"
    )
    uncovered: str = option("refuse", "statistics that dp does not cover: refuse them, or accept a run that uses them")
    stop_at_epsilon: float | None = option(None, "stop before the privacy loss ε exceeds this")
    seed: int = option(0, "seed of the run, and of the federation unless --data-seed is given")
    data_seed: int | None = option(None, "seed of the federation alone")
    evaluate_every: int = option(5, "evaluate clients (L1, L2) every N rounds and after the last")
    evaluate_clients: Any = option("cohort", "which clients to evaluate: cohort, a number of clients, or all")
    thresholds: Any = option((0.5, 0.8, 0.9, 0.95), "accuracy thresholds ε of ρ(ε), the number of clients above ε")
    metrics: Any = option(None, "own metrics, joined by commas: package:function of (logits, y)")
    diagnose: Any = option(None, "diagnostics to record, joined by +: gradients, drift, objective, bound, features, embedding, "
                           "cost, landscape, hessian, ood, confusion")  # fmt: skip
    ood: Any = option(None, "data set for out-of-distribution detection")
    stop_at: float | None = option(None, "stop when the validation accuracy reaches this")
    engine: str = option("auto", "where clients train: auto, inline, processes, ray")
    workers: int | None = option(None, "number of worker processes or Ray actors [one per core]")
    ray_address: str | None = option(
        None, "address of a Ray cluster, HOST:PORT or auto [RAY_ADDRESS, else a local cluster]"
    )
    device: str = option("auto", "cpu, cuda, mps or auto")
    memory: float = option(1.0, "memory budget of the client states in GB")
    out: Any = option(None, "folder of the run [runs/DATA-METHOD-N]")
    track: str | None = option(
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
        """Refuse values that no run can have, with one sentence each."""
        for name in ("clients", "rounds", "epochs", "batch", "evaluate_every"):
            value = getattr(self, name)
            if name == "clients" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadRequest(f"--{name.replace('_', '-')} must be a whole number of at least 1, not {value}")
        for name in ("persist_momentum", "tolerate", "force"):
            if not isinstance(getattr(self, name), bool):  # the text "false" would count as true
                raise BadRequest(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("lr", "lr_decay"):
            self._number(name, lambda v: v > 0, "a finite number above 0")
        for name in ("weight_decay",):
            self._number(name, lambda v: v >= 0, "a finite number of at least 0")
        self._number("momentum", lambda v: 0 <= v < 1, "a number in 0 ≤ momentum < 1")
        self._number("memory", lambda v: v > 0, "a finite number above 0 (GB)")
        if self.clip is not None:
            self._number("clip", lambda v: v > 0, "a finite number above 0")
        if self.weight_cap is not None:
            self._number("weight_cap", lambda v: 0 < v <= 1, "a share, 0 < weight-cap ≤ 1")
        for name in ("validation", "proxy", "unseen"):
            self._number(name, lambda v: 0 <= v < 1, f"a share, 0 ≤ {name} < 1")
        if self.optimizer not in ("sgd", "adam"):
            raise unknown("optimizer", str(self.optimizer), ("sgd", "adam"))
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 1):
            raise BadRequest(f"--workers must be a whole number of at least 1, not {self.workers}")
        if self.engine not in ENGINES:
            raise unknown("engine", str(self.engine), ENGINES)
        if self.ray_address is not None and self.engine == "auto":
            raise BadRequest("--ray-address goes with --engine ray; no other engine joins a cluster")
        if self.stop_at_epsilon is not None:
            self._number("stop_at_epsilon", lambda v: v > 0, "a finite number above 0")
        if self.uncovered not in ("refuse", "accept"):
            raise unknown("uncovered", str(self.uncovered), ("refuse", "accept"))
        if self.track is not None:
            from undrift.experiment.tracking import tracker_names

            if not isinstance(self.track, str):
                raise BadRequest(f"--track must be names such as tensorboard,mlflow, not {self.track!r}")
            tracker_names(self.track)
        if self.stop_at is not None:
            self._number("stop_at", lambda v: 0 < v <= 1, "an accuracy, 0 < stop-at ≤ 1")
            if not self.validation:
                raise BadRequest("--stop-at evaluates on validation data, and there is none; add --validation 0.1")
        if isinstance(self.thresholds, str):
            self.thresholds = self.thresholds.split(",")
        try:
            self.thresholds = tuple(float(value) for value in self.thresholds)
        except (TypeError, ValueError):
            raise BadRequest(f"--thresholds must be numbers such as 0.5,0.9, not {self.thresholds}") from None
        if not all(0 <= value <= 1 for value in self.thresholds):
            raise BadRequest(f"--thresholds must be accuracies in 0…1, not {self.thresholds}")
        text = str(self.evaluate_clients)
        if text not in ("cohort", "all"):
            if not text.isdigit() or int(text) < 1:
                raise BadRequest(
                    f"--evaluate-clients must be cohort, all or a number of clients, not {self.evaluate_clients}"
                )
            self.evaluate_clients = int(text)

    def _number(self, name: str, good: Any, wording: str) -> None:
        value = getattr(self, name)
        fine = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and good(value)
        if not fine:
            raise BadRequest(f"--{name.replace('_', '-')} must be {wording}, not {value}")


ENGINES = ("auto", "inline", "processes", "ray", "flower")
FIELDS = {f.name: f for f in dataclasses.fields(Options)}
HINTS = typing.get_type_hints(Options)


def from_keywords(given: dict[str, Any]) -> Options:
    """Options from keywords; unknown names are refused."""
    for name in given:
        if name not in FIELDS:
            raise unknown("option", name, FIELDS)
    return Options(**given)
