"""`undrift deploy`: run a method on real sites."""

from __future__ import annotations

import importlib.util
import json as json_module
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le

from undrift.cli.settings import read_as, with_options
from undrift.core.errors import BadRequest
from undrift.core.words import shown

Port = Annotated[int, Ge(1), Le(65_535)]
app = typer.Typer(help="Run a method on real sites, with Flower.", no_args_is_help=True)


def init(
    given: dict[str, Any],
    folder: str = typer.Argument(..., help="the app's folder, which must not exist yet"),
    sites: str = typer.Option(..., "--sites", help="the sites that train, in this order: berlin,oslo,turin"),
    evaluate_only: str | None = typer.Option(None, "--evaluate-only", help="sites that evaluate but never train"),
    labels: str | None = typer.Option(
        None, "--labels", help="names of the classes 0, 1, 2, …: cat,dog [not needed for a task without classes]"
    ),
    shape: str | None = typer.Option(None, "--shape", help="shape of one sample, channels first: 3,32,32"),
    run: str | None = typer.Option(None, "--run", help="take method, model and settings from this run"),
    quorum: str | None = typer.Option(
        None, "--quorum", help="how many of a round's sites must reply: a share, or a number [0.5]"
    ),
    deadline: str | None = typer.Option(None, "--deadline", help="seconds for a round [600]"),
    norm: str | None = typer.Option(None, "--norm", help="largest norm of an update, in norms of the model [100]"),
    relative_norm: str | None = typer.Option(
        None, "--relative-norm", help="largest norm of an update, in medians of the other sites' updates [10]"
    ),
    show_models: bool = typer.Option(False, "--show-models", help="allow methods that show sites each other's models"),
    unnamed_nodes: bool = typer.Option(
        False, "--unnamed-nodes", help="allow nodes whose keys have no registered name to speak for a site"
    ),
    address: str | None = typer.Option(
        None, "--address", help="HOST:PORT where sites reach the proxy [127.0.0.1:9443]"
    ),
    superlink: str | None = typer.Option(
        None, "--superlink", help="HOST:PORT of the SuperLink, for the operator and the proxy only [127.0.0.1:9092]"
    ),
) -> None:
    """Write a complete Flower app: settings, the two apps, a proxy's configuration, a template for a site's data, a key
    script, a README."""
    from undrift.deploy import app_hash
    from undrift.deploy.from_run import OF_DATA, settings_of
    from undrift.deploy.init import Places
    from undrift.deploy.init import init as write
    from undrift.deploy.spec import DEPLOY_HINTS

    deploy_options: dict[str, Any] = {"sites": listed(sites)}
    if evaluate_only:
        deploy_options["evaluate_only"] = listed(evaluate_only)
    if labels:
        deploy_options["labels"] = listed(labels)
    if shape:
        lengths = listed(shape)
        if not lengths or not all(re.fullmatch("[1-9][0-9]{0,8}", length) for length in lengths):
            raise BadRequest(f"--shape must be the shape of one sample, as in 3,32,32, not {shown(shape)}")
        deploy_options["shape"] = [int(length) for length in lengths]
    for name, value in (("quorum", quorum), ("deadline", deadline), ("norm", norm), ("relative_norm", relative_norm)):
        if value is not None:
            deploy_options[name] = read_as(DEPLOY_HINTS[name], name, value)
    if unnamed_nodes:
        deploy_options["unnamed_nodes"] = True
    places = Places(**{k: v for k, v in (("address", address), ("superlink", superlink)) if v is not None})
    require_flower()
    settings = settings_of(run)
    if given.get("data") is not None:  # other data than the run's, with their own columns and constants
        settings = {name: value for name, value in settings.items() if name not in OF_DATA}
    spec, setup = write(Path(folder), {**settings, **given}, deploy_options, show_models, places)
    for sentence in setup.notices:
        typer.echo(f"note: {sentence}", err=True)
    typer.echo(f"{setup.method.name} for {', '.join(spec.all_sites)} is in {folder}; read {folder}/README.md first")
    typer.echo("a site sends in every round: " + "; ".join(uploads(setup)))
    typer.echo(f"the app's SHA-256, for the sites: {app_hash.write(Path(folder))} (also in {folder}/{app_hash.FILE})")


def uploads(setup: Any) -> list[str]:
    """What a site sends in a training round."""
    from undrift.round.packed import shared_size

    count, headline = shared_size(setup.plan), setup.plan.task.shown
    own = [f"{part.name}'s {name} ({kind})" for part in setup.method.parts for name, kind in part.uplink.items()]
    return [
        f"the model ({count:,} numbers)",
        *own,
        f"sample count, steps, losses, {headline.name} and other metrics, seconds",
    ]


@app.command("check")
def check(
    folder: str = typer.Argument(".", help="the app's folder"),
    site: str | None = typer.Option(None, "--site", help="the site's name; without it, the server is checked"),
    data: str | None = typer.Option(None, "--data", help="the site's data.py"),
    port: str | None = typer.Option(None, "--port", help="the SuperLink's port, which must be free [the app's]"),
    address: str | None = typer.Option(
        None, "--address", help="HOST:PORT where sites connect, when all runs: is only Fleet open there?"
    ),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Check a site before it joins (its data.py, a round's time and memory, what would leave), check the server before it
    starts, or check what is open to the sites when it runs."""
    from undrift.deploy import check as checks
    from undrift.deploy import proxy

    given = read_as(Port, "port", port)
    if address is not None:
        if site is not None or data is not None:
            raise BadRequest("--address checks what answers there; leave out --site and --data")
        _, app_port = proxy.superlink_of(Path(folder))
        report = proxy.check(address, given or app_port)
    elif site is None:
        if data is not None:
            raise BadRequest("--site is missing; --data belongs to a site")
        require_flower()
        host, app_port = proxy.superlink_of(Path(folder))
        report = checks.server(Path(folder), host, given or app_port)
    else:
        if port is not None:
            raise BadRequest("--port is the server's; leave it out where a site is checked, or leave out --site")
        if data is None:
            raise BadRequest("--data is missing; give the path of the site's data.py")
        report = checks.site(Path(folder), site, Path(data))
    if json:
        typer.echo(json_module.dumps(report))
    else:
        for name, value in report.items():
            typer.echo(f"{name:<22} {value}")


@app.command("app-hash")
def app_hash_command(
    folder: str | None = typer.Argument(None, help="an app's folder; without it, the apps that this machine was sent"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Print the SHA-256 of an app: at the operator's to publish it, at a site of what it was sent ($FLWR_HOME/apps)."""
    from undrift.deploy import app_hash

    require_flower()
    if folder is not None:
        found = [(Path(folder), app_hash.of(Path(folder)), "")]
    else:
        found = app_hash.received()
    if json:
        rows = [{"folder": str(path), "sha256": digest, "remark": remark} for path, digest, remark in found]
        typer.echo(json_module.dumps(rows))
        return
    for path, digest, remark in found:
        typer.echo(f"{digest}  {path}{f'  ({remark})' if remark else ''}")


@app.command("node")
def node(
    site: str = typer.Argument(..., help="the site's name in the operator's list"),
    data: str = typer.Option(..., "--data", help="the site's data.py"),
    key: str = typer.Option(..., "--key", help="the site's private key"),
    address: str | None = typer.Option(
        None, "--address", envvar="FLEET", help="HOST:PORT where sites connect [$FLEET]", show_envvar=False
    ),
    ca: str | None = typer.Option(
        None, "--ca", envvar="CA", help="certificate of the authority to trust [$CA]", show_envvar=False
    ),
    folder: str | None = typer.Option(None, "--folder", help="the site's folder [undrift, beside its data.py]"),
) -> None:
    """Run this site's SuperNode until it is stopped, and end its processes with it."""
    from undrift.deploy import node as nodes
    from undrift.deploy import proxy

    require_flower()
    if not address or not ca:
        raise BadRequest("--address and --ca are missing; give them, or source environment.sh")
    proxy.host_and_port(address)
    args = nodes.command(site, Path(data), address, Path(ca), Path(key), None if folder is None else Path(folder))
    raise typer.Exit(nodes.run(args))


@app.command("status")
def status(
    run: str = typer.Argument(..., help="the run's folder at the server"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Show which sites replied, how long they took and their accuracies, also while the run is in progress."""
    from undrift.deploy import status as statuses

    report = statuses.status(run)
    typer.echo(json_module.dumps(report) if json else statuses.page(report))


def listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def require_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise BadRequest("a deployment needs Flower; install it with pip install 'undrift[flower]'")


app.command("init")(with_options(init))
