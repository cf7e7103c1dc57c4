"""`undrift models`: the networks with their options and their numbers of parameters, counted from the networks."""

from __future__ import annotations

import json as json_module
import re
from typing import Any

import typer

# The samples of the page and the number of outputs: digits, MNIST and its kin, CIFAR, LEAF's Shakespeare.
SHAPES = {"1×8×8": ((1, 8, 8), 10), "1×28×28": ((1, 28, 28), 10), "3×32×32": ((3, 32, 32), 10), "text": ((80,), 80)}


def add(app: typer.Typer) -> None:
    app.command("models")(models)


def models(
    shape: str = typer.Option(
        "1x28x28", "--shape", help="shape of one sample: CHANNELSxHEIGHTxWIDTH, FEATURES, or TOKENS"
    ),
    classes: str = typer.Option("10", "--classes", help="number of classes, or of tokens"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
    markdown: bool = typer.Option(False, "--markdown", help="print all models as Markdown (docs/models.md)"),
) -> None:
    """List the models, with their options and numbers of parameters for samples of a shape."""
    from undrift.experiment.tables import text_table
    from undrift.models import described

    if markdown:
        typer.echo(document())
        return
    found = described(*read_shape(shape, classes))
    if json:
        typer.echo(json_module.dumps(found))
        return
    rows = [["model", "parameters", "buffers", "options"]]
    rows += [[one["name"], number(one["parameters"]), number(one["buffers"]), one["options"]] for one in found]
    typer.echo(text_table(rows, words=(0, 3)))
    typer.echo(f"\nfor samples of shape {shape} and {classes} classes; —: does not fit. --model takes a name with options, as in "
               "mlp(100), or package:function.")  # fmt: skip


def read_shape(shape: str, classes: str) -> tuple[tuple[int, ...], int]:
    from undrift.core.errors import BadRequest

    if not re.fullmatch(r"[1-9][0-9]{0,5}([x×][1-9][0-9]{0,5}){0,2}", shape) or len(re.split("[x×]", shape)) == 2:
        raise BadRequest(
            f"--shape is CHANNELSxHEIGHTxWIDTH such as 3x32x32, or the number of features of a table, not {shape}"
        )
    if not re.fullmatch(r"[1-9][0-9]{0,5}", classes):
        raise BadRequest(f"--classes must be a whole number of at least 1, not {classes}")
    return tuple(int(side) for side in re.split("[x×]", shape)), int(classes)


def number(value: int | None) -> str:
    return "—" if value is None else f"{value:,}"


def document() -> str:
    """docs/models.md."""
    from undrift.experiment.tables import markdown_table
    from undrift.models import described

    tables = {name: {one["name"]: one for one in described(*given)} for name, given in SHAPES.items()}
    head = ["`--model`", *(f"{name}" for name in SHAPES), "smallest image", "options", "what"]
    rows = [head]
    for name, one in next(iter(tables.values())).items():
        text = one["predicts"] == "token"  # the others would count a table of 80 columns there
        counts = [number(table[name]["parameters"] if text or key != "text" else None) for key, table in tables.items()]
        rows.append([f"`{name}`", *counts, side(one), f"`{one['options']}`", one["about"] or "—"])
    return INTRODUCTION + markdown_table(rows, words=(0, 6, 7)) + CONCLUSION


def side(one: dict[str, Any]) -> str:
    if one["predicts"] == "token":
        return "text"
    return f"{one['least_side']}×{one['least_side']}" if one["least_side"] else "any, also tables"


INTRODUCTION = """# Models

`undrift models` lists the networks that `--model` and `ud.run(model=…)` take by name. The numbers are trainable parameters
for ten classes and samples of these shapes (channels × height × width), for text with LEAF's 80 characters, counted from
the networks that are built. This page is what `undrift models --markdown` prints. `undrift models --shape 3x64x64
--classes 200` counts for other data.

"""
CONCLUSION = """

Options go in brackets: `--model "mlp(100)"`, `--model "gpt(layers=2, width=64, heads=4)"`. Without `--model` a run takes
`lstm` for the task `sequence`, `unet` for `segmentation`, else `mlp` for tables and images below 12 pixels, `lenet5` for grey
images, `cnn` for colour images up to 64 pixels, and `resnet18` for larger ones. `lstm` and `gpt` give logits of the next token
at every place of a sequence, `unet` logits at every pixel, the others one row per sample.

A model of your own is any `torch.nn.Module` whose output fits the task, for classes one row of logits per sample:
`ud.run(model=Net())`, a function that makes one (without arguments, or of the shape of a sample and the number of
classes), or `--model package:function`. It is copied and held as one float32 vector, so float64 and bfloat16 networks
train in float32. Frozen parameters (`requires_grad=False`) are outside the vector and keep their dtype
([adapters](adapters.md)). Old-style `weight_norm`, `spectral_norm` and pruned layers
train. Methods that need the features before the last layer need a last linear layer with a weight of its own."""
