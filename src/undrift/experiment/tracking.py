"""`--track`: a run's numbers, live, in TensorBoard, MLflow or Weights & Biases.

Nothing leaves the machine unless your environment says so: MLflow writes to the database mlflow.db in the working
folder unless MLFLOW_TRACKING_URI is set, Weights & Biases is offline unless WANDB_MODE is. A tracker only listens: the
run and its record are the same without it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from undrift.core.errors import BadRequest, unknown
from undrift.experiment.callback import RunCallback
from undrift.store.record import Metric

Numbers = dict[str, float]
PROJECT = "undrift"


class Tracker(Protocol):
    """One tracking library."""

    def log(self, numbers: Numbers, step: int) -> None: ...
    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard: `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], continued: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))
        text = "\n".join(f"    {name} = {value}" for name, value in settings.items())
        self.writer.add_text("options", text)

    def log(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class MLflow:
    """A run of the experiment `undrift`, in mlflow.db or where MLFLOW_TRACKING_URI says. Its id is in RUN/mlflow.txt, so
    that a resumed run continues it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], continued: bool) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"
        self.client, note = MlflowClient(tracking_uri=place), folder / "mlflow.txt"
        if continued and note.exists():
            self.run = note.read_text().strip()
            return
        found = self.client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self.client.create_experiment(PROJECT)
        self.run = self.client.create_run(experiment, run_name=folder.name).info.run_id
        note.write_text(self.run)
        self.client.log_batch(self.run, params=[Param(name, str(value)[:500]) for name, value in settings.items()])

    def log(self, numbers: Numbers, step: int) -> None:
        from mlflow.entities import Metric as Point

        now = int(1000 * time.time())
        points = [Point(mlflow_name(name), value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=points)

    def close(self) -> None:
        self.client.set_terminated(self.run)


class WeightsAndBiases:
    """A run in wandb/ of the working folder, not in the run's, which has no symbolic links; `wandb sync` uploads it. Online if
    WANDB_MODE=online."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], continued: bool) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        quiet = wandb.Settings(silent=True, console="off")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self.run = wandb.init(project=project, name=folder.name, mode=mode, config=dict(settings), settings=quiet)

    def log(self, numbers: Numbers, step: int) -> None:
        self.run.log(numbers, step=step)

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, tuple[Callable[[Path, Mapping[str, Any], bool], Tracker], str]] = {
    "tensorboard": (TensorBoard, "track"),
    "mlflow": (MLflow, "track"),
    "wandb": (WeightsAndBiases, "wandb"),
}


class Tracked(RunCallback):
    """Passes everything on to another callback, and every round's numbers to the trackers."""

    def __init__(self, inner: RunCallback, trackers: Sequence[Tracker]) -> None:
        self.inner, self.trackers = inner, trackers

    def on_message(self, sentence: str) -> None:
        self.inner.on_message(sentence)

    def on_start(self, setup: Any, engine: Any) -> None:
        self.inner.on_start(setup, engine)

    def on_metrics(self, round: int, seconds: float, metrics: Sequence[Metric]) -> None:
        self.inner.on_metrics(round, seconds, metrics)
        for tracker in self.trackers:
            tracker.log({**averages(metrics), "seconds": seconds}, round + 1)

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        self.inner.on_round(round, rounds, seconds, headline)

    def on_end(self, evaluation_share: float) -> None:
        self.inner.on_end(evaluation_share)

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.close()


def averages(metrics: Sequence[Metric]) -> Numbers:
    """`stage/data/metric` of the global model, and the mean over clients; what is not finite is left out."""
    found: dict[str, list[float]] = {}
    for _, _, stage, data, metric, value in metrics:
        if value is not None and math.isfinite(value):
            found.setdefault(f"{stage}/{data}/{metric}", []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in found.items()}


def mlflow_name(name: str) -> str:
    """A name as MLflow allows it: recall:3 becomes recall.3."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "." for letter in name)


def tracker_names(given: str | None) -> list[str]:
    """The names in `tensorboard,wandb`; an unknown one is refused."""
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
    return list(dict.fromkeys(names))


def tracked(
    callback: RunCallback, given: str | None, folder: Path | None, settings: Mapping[str, Any], continued: bool
) -> RunCallback:
    """The callback with the trackers that `--track` names."""
    names = tracker_names(given)
    if not names:
        return callback
    if folder is None:
        raise BadRequest(f"--track {given} writes into the run's folder, and out=False gives it none; name a folder")
    trackers: list[Tracker] = []
    for name in names:
        make, extra = TRACKERS[name]
        try:
            trackers.append(make(folder, settings, continued))
        except ImportError as error:
            raise BadRequest(
                f"--track {name} needs {error.name or name}, which is not installed: pip install 'undrift[{extra}]'"
            ) from None
        except Exception as error:  # of the library: a server that does not answer, a key that is wrong
            why = " ".join(str(error).split())[:300]
            raise BadRequest(f"--track {name} cannot start: {why}; run without it, or correct its settings") from None
    return Tracked(callback, trackers)
