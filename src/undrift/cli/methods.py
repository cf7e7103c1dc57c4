"""`undrift methods`: the published methods and the parts they are made of."""

from __future__ import annotations

import json as json_module
from typing import Any

import typer

HEADER = ["method", "axes", "sends beside the model", "tasks", "passes", "training", "state", "laws", "paper"]


def add(app: typer.Typer) -> None:
    app.command("methods")(methods)


def methods(
    name: str | None = typer.Argument(
        None,
        help="a method as --method takes it: a name, axis.part, package:name of your own, or several joined by + and @",
    ),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
    markdown: bool = typer.Option(
        False, "--markdown", help="print all methods and parts as Markdown (docs/methods.md)"
    ),
) -> None:
    """List all methods, or describe one. Describes its parameters, formula, costs and what it sends."""
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
        typer.echo(text_table(rows, words=(0, 1, 2, 3, 7, 8)) + "\n\n" + LEGEND + "\nJoin methods with +, choose a weighting with @: "
                   "flood+scaffold@bound. `undrift methods NAME` describes one.")  # fmt: skip


def shortened(cell: str, most: int = 32) -> str:
    return cell if len(cell) <= most else cell[: most - 1] + "…"


def row(found: dict[str, Any]) -> list[str]:
    """The row of a method in the table."""
    costs = found["costs"]
    return [
        found["name"], ", ".join(found["axes"]) or "—", "; ".join(found["sends"]) or "—", tasks(found), passes(found),
        f"×{brief(costs['training'])}", models(costs["state"]),
        ", ".join(file.removeprefix("test_") for file in found["laws"]), found["paper"] or "—",
    ]  # fmt: skip


def tasks(found: dict[str, Any]) -> str:
    """`all`, or those that it runs on."""
    from undrift.tasks import TASKS

    missing = [task for task in TASKS if task not in found["tasks"]]
    if not missing:
        return "all"
    return f"not {', '.join(missing)}" if len(missing) < len(found["tasks"]) else f"only {', '.join(found['tasks'])}"


def passes(found: dict[str, Any]) -> str:
    """`1`, `2 per epoch`, `0, proxy`."""
    costs = found["costs"]
    written = [f"{costs['passes']:g}"] if costs["passes"] or not costs["passes_per_epoch"] else []
    written += [f"{costs['passes_per_epoch']:g} per epoch"] if costs["passes_per_epoch"] else []
    return " + ".join(written) + (", proxy" if found["needs_proxy"] else "")


def models(size: int) -> str:
    """Bytes, in units of the whole model."""
    return brief(size / whole()) if size else "—"


def brief(number: float) -> str:
    """Two digits at most: 1, 0.8, 0.98."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def whole() -> int:
    from undrift.bench.costs import model_bytes

    return model_bytes()


LEGEND = """tasks: those on which it runs; a published name was run on a tiny problem of each, and improved its headline
passes: forward passes over a client's data per round, beyond training (proxy: the server passes over its proxy set)
training: samples trained on, relative to FedAvg (depends on the data if samples are selected or held out)
state: what a client keeps between rounds, in units of the whole model
laws: the tests/laws/test_*.py of the method; tests/conformance has a row for every method"""


def page(found: dict[str, Any]) -> str:
    """Everything about one method, as text."""
    costs = found["costs"]
    lines = [f"{found['name']}: {found['what']}"]
    if found["paper"]:
        lines.append(f"paper: {found['paper']}")
    lines += [f"parts: {', '.join(found['parts']) or 'none, plain averaging'}"]
    if found["prefers"]:
        lines.append(f"prefers: {', '.join(found['prefers'])}")
    lines.append("parameters: " + (", ".join(f"{k}={v}" for k, v in found["parameters"].items()) or "none"))
    lines.append("a client sends, beside the model: " + ("; ".join(found["sends"]) or "nothing"))
    lines.append("a client receives, beside the model: " + ("; ".join(found["receives"]) or "nothing"))
    lines.append(f"tasks: {tasks(found)}")
    lines.append(f"clients keep state: {'yes' if found['keeps_state'] else 'no'}")
    lines += ["", *cost_lines(found)]
    lines.append(f"personal model: {PERSONAL[costs['rebuilt']]}")
    laws = ", ".join(f"tests/laws/{file}.py" for file in found["laws"])
    lines.append(f"laws: {laws or 'none of ours; `undrift check` runs the tests of the contract'}")
    lines += [f"controls: {text}" for text in measured_findings(found) or ["not measured yet"]]
    for text in found["about"]:
        lines += ["", text]
    return "\n".join(lines)


def cost_lines(found: dict[str, Any]) -> list[str]:
    """The counted costs of a method."""
    from undrift.bench.costs import NETWORK

    costs = found["costs"]
    return [
        "costs per client and round, counted on a tiny federation when all schedules are on:",
        f"  passes over the client's data beyond training: {passes(found)}",
        f"  samples trained on, relative to FedAvg: {costs['training']:.2f}",
        f"  bytes ({NETWORK}): up {costs['model']:,} + {costs['up']:,}, down {costs['model']:,} + {costs['down']:,} "
        f"(model + the rest); the client keeps {costs['state']:,}, the server {costs['shelf']:,} for it",
    ]  # fmt: skip


PERSONAL = {
    None: "none; all clients hold the global model",
    True: "the server could rebuild it: the client sends exactly the model that it holds after training",
    False: "the server cannot rebuild it: a part of it never leaves the client",
}


def document(published: list[dict[str, Any]], parts: list[dict[str, Any]]) -> str:
    """The text of docs/methods.md."""
    from undrift.bench.costs import CLIENTS, NETWORK, SAMPLES
    from undrift.experiment.tables import markdown_table

    names = [[*HEADER, "personal model"], *([*row(f), SHORT[f["costs"]["rebuilt"]]] for f in published)]
    pieces = [["part", "what it is", *HEADER[2:-1]], *([f["name"], f["what"], *row(f)[2:-1]] for f in parts)]
    return "\n".join([
        "# Methods and parts", "",
        "Written by `undrift methods --markdown > docs/methods.md`; a test checks that it is up to date. `undrift methods NAME`",
        "shows the formula, the parameters, the traps, and where the authors' code differs.", "",
        f"Costs are counted in a run: {CLIENTS} clients of {SAMPLES} samples, a network {NETWORK} "
        f"({whole():,} bytes), the last of", "three rounds. The same in seconds: [results/costs.md](results/costs.md).", "",
        *(f"- {line}" for line in LEGEND.splitlines()), "",
        "## Published names", "", markdown_table(names, words=range(len(names[0]))),
        "", "`personal model`: whether the server could rebuild a client's model from what the client sends.", "",
        "## Parts", "", markdown_table(pieces, words=range(len(pieces[0]))), "",
        "## What the control experiments say", "", *findings(published),
    ])  # fmt: skip


SHORT = {None: "—", True: "yes", False: "no"}


def measured_findings(found: dict[str, Any]) -> list[str]:
    """What our control experiments found about a method, and where."""
    return [f"{finding['sentence']} ({finding['where']})" for finding in found["findings"]]


def findings(published: list[dict[str, Any]]) -> list[str]:
    lines = [f"- **{found['name']}**: {text}" for found in published for text in measured_findings(found)]
    rest = ", ".join(found["name"] for found in published if not found["findings"])
    return [*lines, *([""] if lines else []), f"Not measured yet: {rest}."]
