"""Numbers: how a disease progresses, at ten hospitals.

Every hospital has patients of another severity (`target_skew`), and SCAFFOLD trains one linear model for all. A fifth of the
training patients choose its rate. The script prints the RMSE on the test patients beside that of a ridge regression on the
pooled data, and writes a page with predicted against true values.

    python examples/diabetes.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import torch
from sklearn.linear_model import Ridge

import undrift as ud


def rmse(guess: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


def main(folder: Path) -> None:
    federation = ud.federate("diabetes", "target_skew(0.5)", 10, seed=0, validation=0.2)
    means = [federation.train(hospital)[1].mean().item() for hospital in range(10)]
    print(f"{len(federation.y)} patients at 10 hospitals, mean progression {min(means):.0f} to {max(means):.0f}")

    # `logistic` is one linear layer. Predictions are center + scale · output of the task of these data.
    compared = ud.compare(
        ["scaffold"], federation, grid={"lr": [0.005, 0.02, 0.05]}, model="logistic", rounds=60, momentum=0.0, cohort=1.0,
        out=folder / "diabetes",
    )  # fmt: skip
    result = ud.load(compared.rows[0]["run"], federation=federation)
    print(result.table())
    truth = federation.test_y.numpy()
    with torch.no_grad():
        guess = federation.task.predict(result.model(federation.test_x))[:, 0].numpy()
    ridge = Ridge(alpha=1.0).fit(federation.x.numpy(), federation.y.numpy())
    ours, pooled = rmse(guess, truth), rmse(ridge.predict(federation.test_x.numpy()), truth)
    print(f"RMSE {ours:.2f} of the federation, {pooled:.2f} of a ridge regression on the pooled data")

    ends = [truth.min(), truth.max()]
    figure = go.Figure([
        go.Scatter(x=truth, y=guess, mode="markers", name="a test patient"),
        go.Scatter(x=ends, y=ends, mode="lines", name="exact"),
    ])  # fmt: skip
    figure.update_layout(width=860, height=460, xaxis_title="true progression", yaxis_title="predicted progression")
    figure.write_html(folder / "diabetes.html")
    print("wrote diabetes.html")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
