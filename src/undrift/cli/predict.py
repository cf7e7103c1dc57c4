"""`undrift predict`: what a run's model says about new data."""

from __future__ import annotations

from pathlib import Path

import typer


def add(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    run: str = typer.Argument(..., help="folder of the run"),
    data: str = typer.Argument(
        ..., help="new data: an .npz with x (or x.NAME, x.offsets), a .csv, or a data set's name"
    ),
    client: str | None = typer.Option(None, "--client", help="use the model of this client [the global model]"),
    out: str | None = typer.Option(None, "--out", help="file to write, .csv or .npz [RUN/predictions.csv]"),
    trust: bool = typer.Option(False, "--trust", help="import the code that the run names (package:function)"),
) -> None:
    """Write the predictions of a run's model on new data."""
    from undrift.cli.trust import open_trusted
    from undrift.core.samples import Ragged
    from undrift.experiment.new_samples import read_inputs
    from undrift.experiment.predict import lengths_of, outputs_of, write_predictions

    result = open_trusted(run, trust)
    assert result.folder is not None
    target = Path(out) if out else result.folder / "predictions.csv"
    setup = result.setup
    x = read_inputs(data, setup.options, setup.federation)
    outputs = outputs_of(result, x, result.client_of(client), data)
    labels = [str(label) for label in setup.federation.labels]
    lengths = lengths_of(x) if isinstance(setup.federation.y, Ragged) else None
    write_predictions(target, outputs, setup.plan.task, labels, lengths)
    typer.echo(f"{target}: predictions for {len(outputs)} samples")
