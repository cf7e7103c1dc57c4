"""`undrift data`: list data sets, and show how a partition splits one between clients."""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(help="List data sets, or show how one is split between clients.", no_args_is_help=True)


@app.command("list")
def list_(json: bool = typer.Option(False, "--json", help="print JSON on stdout")) -> None:
    """List the known data sets, and which of them are on this machine."""
    from undrift import data
    from undrift.experiment.tables import text_table

    found: list[dict[str, Any]] = []
    for name in data.names():
        entry = data.about(name)
        classes = None if entry.classes is None else len(entry.classes)
        found.append(
            {
                "name": name,
                "here": data.available(name),
                "shape": list(entry.shape),
                "classes": classes,
                "licence": entry.licence,
                "source": entry.source,
                "note": entry.note,
            }
        )
    if json:
        typer.echo(json_module.dumps(found))
        return
    rows = [["name", "here", "shape", "classes", "licence"]]
    for one in found:
        shape = "×".join(map(str, one["shape"])) or "by its files"
        count = str(one["classes"] or "by its files")
        rows.append([one["name"], "yes" if one["here"] else "—", shape, count, one["licence"][:60]])
    typer.echo(text_table(rows, words=(0, 1, 4)))
    typer.echo(
        "\nData sets are looked for in the folder UNDRIFT_DATA. --data also takes a .npz file or a folder of images."
    )


@app.command("show")
def show(
    data: str = typer.Argument("digits", help="name of a data set, a .npz file, or a folder of images"),
    partition: str = typer.Argument("dirichlet(0.3)", help="how the samples are split between clients"),
    clients: str | None = typer.Option(
        None, "--clients", help="number of clients [20; natural and by_domain take it from the data]"
    ),
    noise: str | None = typer.Option(None, "--noise", help="label noise, joined by +: symmetric(0.2), permute(0.3)"),
    domains: str | None = typer.Option(
        None,
        "--domains",
        help="feature skew: one image transform per client in turn, as in identity+inverted+rotated(45)",
    ),
    seed: str = typer.Option("0", "--seed", help="seed of the federation"),
    html: str | None = typer.Option(None, "--html", help="write the page to this file [runs/data/…; none with --json]"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Show how the samples are split between clients: numbers, and a page with figures."""
    from undrift.cli.settings import read
    from undrift.federation.dealing import federate
    from undrift.report import label_distribution
    from undrift.report.page import write

    asked = read({"seed": seed} | ({} if clients is None else {"clients": clients}))
    federation = federate(data, partition, asked.get("clients"), noise=noise, domains=domains, seed=asked["seed"])
    found = label_distribution.describe(federation)
    if json:
        typer.echo(json_module.dumps(found))
    else:
        typer.echo(label_distribution.terminal(federation, found))
    title = [federation.name, partition, f"{federation.clients} clients", *filter(None, (noise, domains))]
    if html is None and not json:
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", " ".join([Path(title[0]).stem, *title[1:]])).strip("_")[:100]
        html = f"runs/data/{name}.html"
    if html is not None:
        write(Path(html), ", ".join(title), label_distribution.sections(federation, found))
        typer.echo(f"page: {html}", err=json)
