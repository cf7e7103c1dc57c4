"""`undrift data`: what data there are, and who would hold what."""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import Any

import typer

app = typer.Typer(help="What data there are, and who would hold what.", no_args_is_help=True)


@app.command("list")
def list_(json: bool = typer.Option(False, "--json", help="print JSON on stdout")) -> None:
    """The data sets Undrift knows, and which are at hand."""
    from undrift import data
    from undrift.experiment.tables import text_table

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
        count = str(one["classes"] or "by its files")
        rows.append([one["name"], "yes" if one["here"] else "—", shape, count, one["licence"][:60]])
    typer.echo(text_table(rows, words=(0, 1, 4)))
    typer.echo(
        "\nMissing ones are looked for in the folder UNDRIFT_DATA; a .npz file or a folder of images can be named as it is."
    )


@app.command("show")
def show(
    data: str = typer.Argument("digits", help="a data set"),
    partition: str = typer.Argument("dirichlet(0.3)", help="how it is dealt"),
    clients: str | None = typer.Option(
        None, "--clients", help="how many clients [20, or as many as natural and by_domain find in the data]"
    ),
    noise: str | None = typer.Option(None, "--noise", help="wrong labels: symmetric(0.2), permute(0.3), joined by +"),
    domains: str | None = typer.Option(None, "--domains", help="feature skew: identity+inverted+rotated(45)"),
    seed: str = typer.Option("0", "--seed", help="of the federation"),
    html: str | None = typer.Option(None, "--html", help="where the page goes [runs/data/…; with --json none]"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Who holds what: numbers, and a page with a picture."""
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
    words = [federation.name, partition, f"{federation.clients} clients", *filter(None, (noise, domains))]
    if html is None and not json:
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", " ".join([Path(words[0]).stem, *words[1:]])).strip("_")[:100]
        html = f"runs/data/{name}.html"
    if html is not None:
        write(Path(html), ", ".join(words), label_distribution.sections(federation, found))
        typer.echo(f"picture in {html}", err=json)
