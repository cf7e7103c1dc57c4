"""`undrift deploy`: the same method on real sites."""

from __future__ import annotations

import importlib.util
import json as json_module
from pathlib import Path
from typing import Any

import typer

from undrift.cli.settings import number, with_options
from undrift.core.errors import BadRequest

app = typer.Typer(help="The same method on real sites, with Flower.", no_args_is_help=True)


def init(
    given: dict[str, Any],
    folder: str = typer.Argument(..., help="the app's folder, which must not exist yet"),
    sites: str = typer.Option(..., "--sites", help="who trains, in this order: berlin,oslo,turin"),
    evaluate_only: str | None = typer.Option(None, "--evaluate-only", help="sites that only judge"),
    labels: str | None = typer.Option(None, "--labels", help="names of the classes 0, 1, 2, …: cat,dog"),
    shape: str | None = typer.Option(None, "--shape", help="of one sample, channels first: 3,32,32"),
    run: str | None = typer.Option(None, "--run", help="take method, model and settings from this run"),
    quorum: str | None = typer.Option(None, "--quorum", help="of a round's sites: a share, or a number [0.5]"),
    deadline: str | None = typer.Option(None, "--deadline", help="seconds for a round [600]"),
    norm: str | None = typer.Option(None, "--norm", help="longest update, in lengths of the model [100]"),
    show_models: bool = typer.Option(False, "--show-models", help="sites may see each other's models"),
) -> None:
    """Write a complete Flower app: settings, the two apps, a template for a site's data, keys, the commands."""
    from undrift.deploy.init import init as write

    require_flower()
    words: dict[str, Any] = {"sites": listed(sites)}
    if evaluate_only:
        words["evaluate_only"] = listed(evaluate_only)
    if labels:
        words["labels"] = listed(labels)
    if shape:
        if not all(length.isdigit() and int(length) for length in listed(shape)):
            raise BadRequest(f"--shape is the shape of one sample, as in 3,32,32, not {shape!r}")
        words["shape"] = [int(length) for length in listed(shape)]
    if quorum is not None:
        words["quorum"] = int(quorum) if quorum.isdigit() else number("quorum", quorum)
    for name, value in (("deadline", deadline), ("norm", norm)):
        if value is not None:
            words[name] = number(name, value)
    spec, setup = write(Path(folder), {**settings_of(run), **given}, words, show_models)
    for sentence in setup.notices:
        typer.echo(f"note: {sentence}", err=True)
    typer.echo(f"{setup.method.name} for {', '.join(spec.everybody)} is in {folder}; read {folder}/README.md first")
    typer.echo("leaves a site in every round: " + "; ".join(leaves(setup)))


def settings_of(run: str | None) -> dict[str, Any]:
    """The settings of a simulation that are a deployment's too."""
    if run is None:
        return {}
    from undrift.experiment.folders import run_folder
    from undrift.experiment.run_toml import read_toml

    kept = (
        "method", "parts", "model", "rounds", "epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "lr_decay",
        "clip", "persist_momentum", "augment", "loss", "seed", "data", "evaluate_every",
    )  # fmt: skip
    table = read_toml(run_folder(run) / "run.toml")
    found = {name: table[name] for name in kept if name in table}
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("object:"):
            raise BadRequest(
                f"{run} has a {name} that text cannot name; put it into a file and name it package:function"
            )
    return found


def leaves(setup: Any) -> list[str]:
    from undrift.deploy.codec import shared

    count = len(shared(setup.runtime.initial, setup.plan))
    own = [f"{part.name}'s {name} ({kind})" for part in setup.method.parts for name, kind in part.uplink.items()]
    return [f"the model ({count:,} numbers)", *own, "sample count, steps, losses, accuracies, seconds"]


@app.command("check")
def check(
    folder: str = typer.Argument(".", help="the app's folder"),
    site: str | None = typer.Option(None, "--site", help="this site's name; without it, the server is checked"),
    data: str | None = typer.Option(None, "--data", help="this site's data.py"),
    port: str | None = typer.Option(None, "--port", help="the SuperLink's port, to see whether it is free [9092]"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Before joining: does this site's data.py fit, how long does a round take, what would leave. Or: is the server ready."""
    from undrift.deploy import check as checks

    if site is None:
        require_flower()
        found = checks.server(Path(folder), int(port) if port and port.isdigit() else 9092)
    else:
        if data is None:
            raise BadRequest("--data names the site's data.py")
        found = checks.site(Path(folder), site, Path(data))
    if json:
        typer.echo(json_module.dumps(found))
    else:
        for name, value in found.items():
            typer.echo(f"{name:<22} {value}")


@app.command("status")
def status(
    run: str = typer.Argument(..., help="the run's folder at the server"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Which sites answered, how long they took, what they judged; also while the run goes on."""
    from undrift.deploy import status as statuses

    found = statuses.status(run)
    typer.echo(json_module.dumps(found) if json else statuses.page(found))


def listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def require_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise BadRequest("deploying needs Flower: pip install 'undrift[flower]'")


app.command("init")(with_options(init))
