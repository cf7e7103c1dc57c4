"""A deployment of another task than classification: same bits as a simulation, and no labels where there are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.deploy.spec import Spec
from undrift.testing.task_table import PROBLEMS

SITE = """
import numpy as np
from pathlib import Path
def load():
    file = np.load(Path(__file__).with_name("data.npz"))
    {body}
"""
BODIES = {
    "regression": 'return file["x"], file["y"]',
    "sequence": "from undrift import Ragged; return (Ragged(file['x'], 5, file['o']), Ragged(file['y'], -1, file['o']))",
}


@pytest.mark.parametrize(
    ("task", "model", "shape"),
    [("regression", "mlp(4)", (6,)), ("sequence(outputs=5)", "undrift.testing.task_table:tokens", (9,))],
)
def test_sites_without_labels_give_the_bits_of_a_simulation(task, model, shape, tmp_path, deploy):
    Deployment, InProcess = (type(one) for one in (deploy(), deploy().transport))
    name = task.partition("(")[0]
    samples = PROBLEMS[name][0]
    clients = [samples(torch.Generator().manual_seed(seed), seed) for seed in range(3)]
    sites = ("berlin", "oslo", "turin")
    for site, (x, y) in zip(sites, clients):
        (tmp_path / site).mkdir(exist_ok=True)
        arrays = {"x": x, "y": y} if name == "regression" else {"x": x.values, "y": y.values, "o": x.offsets}
        np.savez(tmp_path / site / "data.npz", **{key: value.numpy() for key, value in arrays.items()})
        (tmp_path / site / "data.py").write_text(SITE.format(body=BODIES[name]))
    settings = {
        "rounds": 3,
        "epochs": 1,
        "batch": 8,
        "model": model,
        "selection": "all",
        "evaluate_every": 2,
        "task": task,
    }
    spec = Spec({**settings, "method": "scaffold"}, None, sites, (), shape, (), wait=0.05, deadline=0.05)
    configs = {100 - k: {"site": site, "data": str(tmp_path / site / "data.py")} for k, site in enumerate(sites)}
    names = {node: config["site"] for node, config in configs.items()}
    deployed = Deployment(tmp_path, InProcess(spec, configs, set(configs), names)).serve()
    del settings["task"]
    federation = ud.Federation.from_clients(clients, task=task)
    simulated = ud.run("scaffold", federation, **settings, weight_cap=0.5, engine="inline", out=False)
    assert deployed.summary["model_sha256"] == simulated.summary["model_sha256"]
    assert deployed.summary["headline"]["name"] == federation.task.headline
    sites_now = deployed.summary["sites"]["berlin"]
    assert set(sites_now) == {"L1", "L2"}


def test_an_operator_needs_no_labels_for_a_regression_but_a_vocabulary_for_sequences(tmp_path):
    from undrift.deploy.init import init

    spec, setup = init(tmp_path / "app", {"task": "regression", "model": "mlp(4)"}, {"sites": ["a", "b"], "shape": [6]})
    assert spec.labels == ("0",)
    assert setup.plan.task.headline == "rmse"
    with pytest.raises(BadRequest, match=r"--labels.*sequence\(outputs=86\)"):
        init(tmp_path / "other", {"task": "sequence", "model": "mlp(4)"}, {"sites": ["a", "b"], "shape": [6]})


def test_an_app_made_from_a_run_has_the_task_of_its_data(tmp_path):
    """Centre and scale of the targets come with the run's data, and sites must use the same ones."""
    from undrift.cli.deploy import uploads
    from undrift.deploy.from_run import settings_of
    from undrift.deploy.init import init

    lines = [f"{town},{rooms},{100 * rooms}" for town in ("ulm", "bonn") for rooms in range(1, 11)]
    (tmp_path / "houses.csv").write_text("\n".join(["town,rooms,price", *lines]))
    columns = {"data": str(tmp_path / "houses.csv"), "target": "price", "client_column": "town", "task": "regression"}
    houses = ud.run("scaffold", **columns, model="logistic", rounds=1, out=tmp_path / "houses")
    app, _ = init(tmp_path / "app", settings_of(str(tmp_path / "houses")), {"sites": ["ulm", "bonn"]})
    assert app.table["task"] == "regression(outputs=1, loss=mse, center=550.0, scale=287.228)"
    assert (app.shape, app.labels, "data" in app.table, "target" in app.table) == ((1,), ("price",), False, False)
    assert "losses, rmse and other metrics" in uploads(houses.setup)[-1]
    known, _ = init(tmp_path / "known", {"data": "diabetes"}, {"sites": ["a"]})
    assert known.table["task"].startswith("regression(outputs=1, loss=mse, center=151.")
    plain, _ = init(tmp_path / "plain", {"data": "digits"}, {"sites": ["a"]})
    assert "task" not in plain.table
