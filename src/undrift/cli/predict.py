"""`undrift predict`: what a run's model says about new data."""

from __future__ import annotations

from pathlib import Path

import typer


def add(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    run: str = typer.Argument(..., help="folder of the run"),
    data: str = typer.Argument(..., help="new data: an .npz with the array x, a .csv, or a data set's name"),
    client: str | None = typer.Option(None, "--client", help="use the model of this client [the global model]"),
    out: str | None = typer.Option(None, "--out", help="file to write, .csv or .npz [RUN/predictions.csv]"),
    trust: bool = typer.Option(False, "--trust", help="import the code that the run names (package:function)"),
) -> None:
    """Write the predictions of a run's model on new data."""
    from undrift.cli.trust import open_trusted
    from undrift.experiment.predict import outputs_of, read_inputs, write_predictions

    result = open_trusted(run, trust)
    assert result.folder is not None
    target = Path(out) if out else result.folder / "predictions.csv"
    outputs = outputs_of(result, read_inputs(data), result.client_of(client), data)
    labels = [str(label) for label in result.setup.federation.labels]
    write_predictions(target, outputs, result.setup.plan.task, labels)
    typer.echo(f"{target}: predictions for {len(outputs)} samples")
