"""`--track`: the numbers of a run in the local files of TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.callback import RunCallback
from undrift.experiment.tracking import averages, mlflow_name, tracked, tracker_names

SMALL = {"rounds": 2, "clients": 3, "epochs": 1, "model": "logistic", "evaluate_every": 2, "engine": "inline"}


def by_round(result, stage, data, metric):
    query = "SELECT round, AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? GROUP BY round ORDER BY round"
    return [(round + 1, pytest.approx(value)) for round, value in result.rows(query, (stage, data, metric))]


def test_means_over_clients_and_nothing_that_is_not_finite():
    rows = [(0, None, "G", "global", "accuracy", 0.5), (0, 1, "L1", "own", "accuracy", 0.2)]
    rows += [(0, 2, "L1", "own", "accuracy", 0.4), (0, None, "G", "global", "loss", float("nan"))]
    assert averages(rows) == {"G/global/accuracy": 0.5, "L1/own/accuracy": pytest.approx(0.3)}
    assert mlflow_name("G/global/recall:3") == "G/global/recall.3"


def test_unknown_trackers_and_runs_without_a_folder_are_refused(tmp_path):
    with pytest.raises(BadRequest, match=r"tensorbord.*tensorboard"):
        ud.run("fedavg", track="tensorbord", out=tmp_path / "r", **SMALL)
    with pytest.raises(BadRequest, match="out=False"):
        ud.run("fedavg", track="tensorboard", out=False, **SMALL)
    assert tracker_names("mlflow, wandb,mlflow") == ["mlflow", "wandb"]
    assert not (tmp_path / "r").exists()


def test_a_library_that_is_missing_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(BadRequest, match=r"--track wandb needs wandb.*undrift\[wandb\]"):
        tracked(RunCallback(), "wandb", tmp_path, {}, False)


@pytest.mark.extras
def test_tensorboard_has_every_round_and_a_resumed_run_adds_its_own(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ud.run("fedavg", track="tensorboard", out=tmp_path / "r", **SMALL)
    plain = ud.run("fedavg", out=tmp_path / "plain", **SMALL)
    result = ud.resume(tmp_path / "r", rounds=3)
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    for place in (("G", "global", "accuracy"), ("L1", "own", "accuracy"), ("L2", "own", "accuracy")):
        found = [(event.step, event.value) for event in events.Scalars("/".join(place))]
        assert found == by_round(result, *place)
    assert [event.step for event in events.Scalars("G/global/accuracy")] == [1, 2, 3]
    assert plain.rows("SELECT value FROM metrics WHERE round < 2") == result.rows(
        "SELECT value FROM metrics WHERE round < 2"
    )


@pytest.mark.extras
def test_mlflow_has_options_and_every_round_of_a_run_and_its_resumption(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    ud.run("fedprox(mu=0.5)", track="mlflow", out=tmp_path / "r", **SMALL)
    result = ud.resume(tmp_path / "r", rounds=3)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("undrift").experiment_id])
    assert run.data.params["method"] == "fedprox(mu=0.5)"
    assert run.info.run_name == "r"
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "G/global/accuracy")
    assert [(point.step, point.value) for point in history] == by_round(result, "G", "global", "accuracy")


def log_records(data: bytes):
    """The records of a LevelDB log after a header of seven bytes: blocks of 32 kB, in them pieces of (crc, length, kind)."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if place % 32768 > 32768 - 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


@pytest.mark.extras
def test_wandb_is_offline_unless_told_otherwise(tmp_path, monkeypatch):
    from wandb.proto import wandb_internal_pb2

    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    result = ud.run("fedavg", track="wandb", out=tmp_path / "r", **SMALL)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    found = []
    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        values = {item.nested_key[0] if item.nested_key else item.key: item.value_json for item in record.history.item}
        if "G/global/accuracy" in values:
            found.append((int(values["_step"]), float(values["G/global/accuracy"])))
    assert found == by_round(result, "G", "global", "accuracy")
