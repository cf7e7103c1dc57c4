"""`undrift methods`: the parts and the published methods."""

from __future__ import annotations

import json as json_module
from typing import Any

import typer

HEADER = ["method", "axes", "sends beside the model", "passes", "training", "state", "laws", "paper"]


def add(app: typer.Typer) -> None:
    app.command("methods")(methods)


def methods(
    name: str | None = typer.Argument(None, help="a published name, or axis.part"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
    markdown: bool = typer.Option(False, "--markdown", help="all of them and all parts, as docs/methods.md"),
) -> None:
    """All methods, or everything about one: parameters, formula, what it costs, what it sends."""
    from undrift.bench import catalogue

    if name is not None:
        found = catalogue.describe(name)
        typer.echo(json_module.dumps(found) if json else page(found))
    elif markdown:
        typer.echo(document(catalogue.published(), catalogue.parts()))
    elif json:
        typer.echo(json_module.dumps(catalogue.published()))
    else:
        from undrift.experiment.tables import text_table

        rows = [HEADER, *([shortened(cell) for cell in row(found)] for found in catalogue.published())]
        typer.echo(text_table(rows, words=(0, 1, 2, 6, 7)) + "\n\n" + LEGEND + "\nJoin with +, ask for a weighting with @: "
                   "flood+scaffold@bound. `undrift methods NAME` tells all about one.")  # fmt: skip


def shortened(cell: str, most: int = 32) -> str:
    return cell if len(cell) <= most else cell[: most - 1] + "…"


def row(found: dict[str, Any]) -> list[str]:
    costs = found["costs"]
    return [
        found["name"], ", ".join(found["axes"]) or "—", "; ".join(found["sends"]) or "—", passes(found),
        f"×{brief(costs['training'])}", models(costs["state"]),
        ", ".join(file.removeprefix("test_") for file in found["laws"]), found["paper"] or "—",
    ]  # fmt: skip


def passes(found: dict[str, Any]) -> str:
    """`1`, `2 per epoch`, `0, proxy`."""
    costs = found["costs"]
    words = [f"{costs['passes']:g}"] if costs["passes"] or not costs["passes_per_epoch"] else []
    words += [f"{costs['passes_per_epoch']:g} per epoch"] if costs["passes_per_epoch"] else []
    return " + ".join(words) + (", proxy" if found["needs_proxy"] else "")


def models(size: int) -> str:
    """Bytes in whole models."""
    return brief(size / whole()) if size else "—"


def brief(number: float) -> str:
    """Two digits at most: 1, 0.8, 0.98."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def whole() -> int:
    from undrift.bench.costs import model_bytes

    return model_bytes()


LEGEND = """passes: forward passes over a client's data per round, beyond training's (proxy: the server passes over its proxy set)
training: samples trained on, in FedAvg's (data decide, where samples are picked or held out)
state: what a client keeps, in whole models
laws: tests/laws/test_*.py that state them; every method is also a row of tests/conformance"""


def page(found: dict[str, Any]) -> str:
    costs = found["costs"]
    lines = [f"{found['name']}: {found['what']}"]
    if found["paper"]:
        lines.append(f"paper: {found['paper']}")
    lines += [f"parts: {', '.join(found['parts']) or 'none beyond plain averaging'}"]
    if found["prefers"]:
        lines.append(f"prefers: {', '.join(found['prefers'])}")
    lines.append("parameters: " + (", ".join(f"{k}={v}" for k, v in found["parameters"].items()) or "none"))
    lines.append("leaves a site, beside the model: " + ("; ".join(found["sends"]) or "nothing"))
    lines.append("reaches a site, beside the model: " + ("; ".join(found["receives"]) or "nothing"))
    lines.append(f"clients keep state: {'yes' if found['keeps_state'] else 'no'}")
    lines += ["", *bill(found)]
    lines.append(f"personal model: {PERSONAL[costs['rebuilt']]}")
    lines.append("laws: " + ", ".join(f"tests/laws/{file}.py" for file in found["laws"]))
    lines += [f"controls: {text}" for text in spoken(found) or ["not measured yet"]]
    for text in found["about"]:
        lines += ["", text]
    return "\n".join(lines)


def bill(found: dict[str, Any]) -> list[str]:
    """What it costs, as it was counted."""
    from undrift.bench.costs import NETWORK

    costs = found["costs"]
    return [
        "costs per client and round, counted on a tiny federation once its schedule is on:",
        f"  passes over the client's data beyond training: {passes(found)}",
        f"  samples trained on, in FedAvg's: {costs['training']:.2f}",
        f"  bytes ({NETWORK}): up {costs['model']:,} + {costs['up']:,}, down {costs['model']:,} + {costs['down']:,} "
        f"(model + the rest); the client keeps {costs['state']:,}, the server {costs['shelf']:,} for it",
    ]  # fmt: skip


PERSONAL = {
    None: "none; everybody holds the global model",
    True: "the server could rebuild it: what a client holds after training is what it sends",
    False: "the server cannot rebuild it from what it is sent: a part of it never leaves the client",
}


def document(published: list[dict[str, Any]], parts: list[dict[str, Any]]) -> str:
    """docs/methods.md."""
    from undrift.bench.costs import CLIENTS, NETWORK, SAMPLES
    from undrift.experiment.tables import markdown_table

    names = [[*HEADER, "personal model"], *([*row(f), SHORT[f["costs"]["rebuilt"]]] for f in published)]
    pieces = [["part", "what it is", *HEADER[2:-1]], *([f["name"], f["what"], *row(f)[2:-1]] for f in parts)]
    return "\n".join([
        "# Methods and parts", "",
        "Made by `undrift methods --markdown > docs/methods.md`; a test compares. `undrift methods NAME` has the formula,",
        "the parameters, the traps and where the authors' code differs.", "",
        f"Costs are counted, not typed: {CLIENTS} clients of {SAMPLES} samples, a network {NETWORK} "
        f"({whole():,} bytes), the last of", "three rounds. What they are in seconds: [results/costs.md](results/costs.md).", "",
        *(f"- {line}" for line in LEGEND.splitlines()), "",
        "## Published names", "", markdown_table(names, words=range(len(names[0]))),
        "", "`personal model`: whether the server could rebuild what a client holds from what it is sent.", "",
        "## Parts", "", markdown_table(pieces, words=range(len(pieces[0]))), "",
        "## What the controls say", "", *findings(published),
    ])  # fmt: skip


SHORT = {None: "—", True: "yes", False: "no"}


def spoken(found: dict[str, Any]) -> list[str]:
    return [f"{finding['sentence']} ({finding['where']})" for finding in found["findings"]]


def findings(published: list[dict[str, Any]]) -> list[str]:
    lines = [f"- **{found['name']}**: {text}" for found in published for text in spoken(found)]
    rest = ", ".join(found["name"] for found in published if not found["findings"])
    return [*lines, *([""] if lines else []), f"Not measured yet: {rest}."]
