"""`undrift methods`: the parts and the published methods."""

from __future__ import annotations

import inspect
import json as json_module
import sys
from typing import Any

import typer


def add(app: typer.Typer) -> None:
    app.command("methods")(methods)


def methods(
    name: str | None = typer.Argument(None, help="a published name, or axis.part"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """All methods, or everything about one: parameters, formula, what it costs, what it sends."""
    if name is None:
        table = everything()
        if json:
            typer.echo(json_module.dumps(table))
            return
        from undrift.study.tables import text_table

        rows = [["method", "parts", "sends beside the model", "what it is"]]
        rows += [[m["name"], ", ".join(m["parts"]) or "—", ", ".join(m["sends"]) or "—", m["what"]] for m in table]
        typer.echo(text_table([[cell[:58] for cell in row] for row in rows]))
        typer.echo(
            "\nJoin with +, ask for a weighting with @: flood+scaffold@bound. `undrift methods NAME` tells all about one."
        )
        return
    found = one(name)
    typer.echo(json_module.dumps(found) if json else page(found))


def everything() -> list[dict[str, Any]]:
    from undrift.methods import PUBLISHED

    return [describe(name) for name in PUBLISHED]


def describe(name: str) -> dict[str, Any]:
    from undrift.methods import PUBLISHED

    published = PUBLISHED[name]
    bundle = published.factory()
    parts = [*bundle.brings]
    return {
        "name": name,
        "what": (inspect.getdoc(published.factory) or "").splitlines()[0] if published.factory.__doc__ else "",
        "paper": published.paper,
        "parts": [part.key for part in parts],
        "prefers": [part.key for part in bundle.prefers],
        "parameters": parameters(published.factory),
        "sends": [f"{n}: {kind}" for part in parts for n, kind in part.sends.items()],
        "receives": [f"{n}: {kind}" for part in parts for n, kind in part.receives.items()],
        "keeps_state": any(has_state(part) for part in parts),
        "rebuilt": personal_model(parts),
        "about": [documentation(part) for part in parts],
    }


def one(name: str) -> dict[str, Any]:
    from undrift.errors import unknown
    from undrift.methods import PUBLISHED
    from undrift.text import part_tables

    if name in PUBLISHED:
        return describe(name)
    tables = part_tables()
    axis, _, short = name.partition(".")
    homes = (
        [(axis, short)]
        if axis in tables and short in tables[axis]
        else [(a, name) for a in tables if name in tables[a]]
    )
    if not homes:
        raise unknown("method", name, {*PUBLISHED, *(n for table in tables.values() for n in table)})
    axis, short = homes[0]
    cls: Any = tables[axis][short]
    sends, receives = getattr(cls, "sends", {}), getattr(cls, "receives", {})
    return {
        "name": f"{axis}.{short}", "what": (inspect.getdoc(sys.modules[cls.__module__]) or "").splitlines()[0], "paper": "",
        "parts": [f"{axis}.{short}"], "prefers": [], "parameters": parameters(cls),
        "sends": [f"{n}: {kind}" for n, kind in sends.items()] if isinstance(sends, dict) else ["depends on its parameters"],
        "receives": [f"{n}: {kind}" for n, kind in receives.items()] if isinstance(receives, dict) else ["depends on its parameters"],
        "keeps_state": "first" in vars(cls), "rebuilt": "", "about": [inspect.getdoc(sys.modules[cls.__module__]) or ""],
    }  # fmt: skip


def parameters(factory: Any) -> dict[str, Any]:
    from undrift.text import spell

    out = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        try:
            out[name] = "required" if parameter.default is parameter.empty else spell(parameter.default)
        except Exception:
            out[name] = str(parameter.default)
    return out


def has_state(part: Any) -> bool:
    from undrift.parts import defines

    return defines(part, "first")


def personal_model(parts: list[Any]) -> str:
    """Whether the server could rebuild what a client holds from what leaves it. Who defines `holds` keeps a model beside
    the one that is sent; who does not holds what it sends, or a mix that follows from it."""
    from undrift.parts import defines

    if any(part.axis == "private" for part in parts):
        return "no, its private entries never leave the site"
    personal = next((part for part in parts if part.axis == "personalize"), None)
    if personal is None:
        return "there is none"
    return "no, it never leaves the site" if defines(personal, "holds") else "yes, it follows from what leaves the site"


def documentation(part: Any) -> str:
    return inspect.getdoc(sys.modules[type(part).__module__]) or ""


def page(found: dict[str, Any]) -> str:
    lines = [f"{found['name']}: {found['what']}"]
    if found["paper"]:
        lines.append(f"paper: {found['paper']}")
    lines += [f"parts: {', '.join(found['parts']) or 'none beyond plain averaging'}"]
    if found["prefers"]:
        lines.append(f"prefers: {', '.join(found['prefers'])}")
    lines.append("parameters: " + (", ".join(f"{k}={v}" for k, v in found["parameters"].items()) or "none"))
    lines.append("leaves a site, beside the model: " + ("; ".join(found["sends"]) or "nothing"))
    lines.append("reaches a site, beside the model: " + ("; ".join(found["receives"]) or "nothing"))
    if found["rebuilt"]:
        lines.append(f"could the server rebuild a client's personal model: {found['rebuilt']}")
    lines.append(f"clients keep state: {'yes' if found['keeps_state'] else 'no'}")
    for text in found["about"]:
        lines += ["", text]
    return "\n".join(lines)
