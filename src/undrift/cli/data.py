"""`undrift data`: what data there are, and who would hold what."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(help="What data there are, and who would hold what.", no_args_is_help=True)


@app.command("list")
def list_(json: bool = typer.Option(False, "--json", help="print JSON on stdout")) -> None:
    """The data sets Undrift knows, and which are at hand."""
    from undrift import data
    from undrift.study.tables import text_table

    found: list[dict[str, Any]] = []
    for name in data.names():
        entry = data.about(name)
        classes = None if entry.classes is None else len(entry.classes)
        found.append({"name": name, "here": data.available(name), "shape": list(entry.shape), "classes": classes,
                      "licence": entry.licence, "source": entry.source, "note": entry.note})  # fmt: skip
    if json:
        typer.echo(json_module.dumps(found))
        return
    rows = [["name", "here", "shape", "classes", "licence"]]
    for one in found:
        shape = "×".join(map(str, one["shape"])) or "by its files"
        rows.append([one["name"], "yes" if one["here"] else "—", shape, str(one["classes"] or "?"), one["licence"][:60]])
    typer.echo(text_table(rows))
    typer.echo("\nMissing ones are looked for in the folder UNDRIFT_DATA; a .npz file or a folder of images can be named as it is.")


@app.command("show")
def show(
    data: str = typer.Argument("digits", help="a data set"),
    partition: str = typer.Argument("dirichlet(0.3)", help="how it is dealt"),
    clients: str = typer.Option("20", "--clients", help="how many clients"),
    noise: str | None = typer.Option(None, "--noise", help="wrong labels"),
    seed: str = typer.Option("0", "--seed", help="of the federation"),
    html: str | None = typer.Option(None, "--html", help="write the picture here"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """A picture of who holds what."""
    from undrift.cli.settings import read
    from undrift.federation import federate
    from undrift.study import holdings

    asked = read({"clients": clients, "seed": seed})
    federation = federate(data, partition, asked["clients"], noise=noise, seed=asked["seed"])
    found = holdings.describe(federation)
    if json:
        typer.echo(json_module.dumps(found))
    else:
        typer.echo(holdings.terminal(federation, found))
    if html is not None:
        from undrift.study.page import write

        write(Path(html), f"{federation.name}, {partition}, {clients} clients", holdings.sections(federation, found))
        typer.echo(f"picture in {html}", err=json)
