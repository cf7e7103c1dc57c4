"""Writes docs/api.md from the docstrings: `python docs/make_api.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import undrift as ud
from undrift import testing
from undrift.contract import context, declare, job, networks, parameters, parts
from undrift.methods.published import PUBLISHED

FUNCTIONS = ("federate", "method", "run", "compare", "advise", "resume", "load")
CLASSES = ("Federation", "Method", "Result", "Task", "Ragged", "Columns")
AXES = ("Sampling", "Objective", "Personalize", "Weighting", "Combine", "ServerUpdate", "Private", "Upload")
GIVEN = (context.Plan, job.Job, job.Scored, job.TrainingStats, context.Batch, networks.SecondModel,
         networks.Reference, networks.Twin, networks.Replica, context.Server,
         context.Shelf, context.Replies, context.Problem)  # fmt: skip
DECLARATIONS = (declare.Number, declare.Array, declare.Along, declare.Models, declare.Numbers)
MODULES = ("partition", "noise", "domains", "faults", "augment", "selection", "sampling", "objectives", "personalize",
           "weighting", "combine", "server", "private", "upload", "tasks")  # fmt: skip


def page() -> str:
    blocks = ["# API reference", "Made from the docstrings by `python docs/make_api.py`. Everything is reached through "
              "`import undrift as ud`; what is not listed here is not promised ([stability](stability.md))."]  # fmt: skip
    blocks.append("## Functions")
    blocks += [entry(f"ud.{name}", getattr(ud, name)) for name in FUNCTIONS]
    blocks.append("## Classes")
    for name in CLASSES:
        cls = getattr(ud, name)
        blocks.append(entry(f"ud.{name}", cls))
        blocks += [entry(f".{member}", found) for member, found in members(cls)]
    blocks.append("## Axes and hooks\n\nA part subclasses one (or several) of these and defines the hooks it needs.")
    blocks.append(entry("ud.parts.Part", parts.Part))
    blocks += [entry(f".{member}", found) for member, found in members(parts.Part)]
    for name in AXES:
        cls = getattr(parts, name)
        blocks.append(entry(f"ud.parts.{name}", cls))
        blocks += [entry(f".{member}", found) for member, found in members(cls)]
    blocks.append("## What a hook gets\n\nThe objects that hooks are called with, and what they can do.")
    for cls in GIVEN:
        blocks += [f"**`{cls.__name__}`**\n\n{documented(cls)}", fields(cls)]
        blocks += [entry(f".{member}", found) for member, found in members(cls)]
    blocks.append("## Declarations\n\nWhat `uplink` and `downlink` are made of, and the ranges of parameters.")
    blocks += [entry(f"undrift.contract.declare.{kind.__name__}", kind) for kind in DECLARATIONS]
    blocks.append(entry("undrift.contract.parameters.Range", parameters.Range))
    blocks.append("## Checking a part of your own")
    blocks.append(entry("undrift.testing.check", testing.check))
    blocks.append('## Published methods\n\nNames for `ud.run("name(key=value)")` and the command line.')
    blocks += [f"**`{name}{signature(one.factory)}`** {one.what} *{one.paper}.*" for name, one in PUBLISHED.items()]
    blocks.append("## Parts and environments")
    for name in MODULES:
        blocks.append(module(name))
    return "\n\n".join(block for block in blocks if block) + "\n"


def signature(found: Any) -> str:
    """Arguments with their annotations as they are written."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(found)))
    return re.sub(r" -> (None|Bundle)$", "", text)


def members(cls: Any) -> list[tuple[str, Any]]:
    """What a class itself defines, in the order of its source."""
    return [(name, found) for name, found in vars(cls).items() if not name.startswith("_")
            and (callable(found) or isinstance(found, (property, staticmethod))) and documented(found)]  # fmt: skip


def fields(cls: Any) -> str:
    """The fields of a dataclass, or the annotated and assigned attributes of another class, with their comments."""
    lines = inspect.getsource(cls).splitlines()
    found = [re.match(r"    (\w+): ([^=#]+?)(?: = [^#]+?)?(?:  # (.*))?$", line) for line in lines]
    listed = [match for match in found if match and not match[1].startswith("_")]
    return "\n".join(f"- `{match[1]}: {match[2]}`{f': {match[3]}' if match[3] else ''}" for match in listed)


def documented(found: Any) -> str:
    found = found.__func__ if isinstance(found, staticmethod) else found
    return inspect.getdoc(found) or ""


def entry(name: str, found: Any) -> str:
    plain = found.__func__ if isinstance(found, staticmethod) else found
    try:
        arguments = "" if isinstance(plain, property) else signature(plain)
    except (TypeError, ValueError):
        arguments = ""
    text = textwrap.dedent(documented(found)).strip()
    return f"**`{name}{arguments}`**\n\n{escaped(text)}"


def escaped(text: str) -> str:
    """Doctests as code, the rest as it is."""
    lines, out, inside = text.splitlines(), [], False
    for line in lines:
        if line.startswith(">>>") and not inside:
            out.append("```python")
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)


def module(name: str) -> str:
    found: ModuleType = getattr(ud, name)
    lines = [f"### ud.{name}", (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")]
    for item in getattr(found, "__all__", []):
        one = getattr(found, item)
        if not callable(one):
            continue
        home = inspect.getmodule(one)
        own = inspect.getdoc(one) or ""
        if dataclasses.is_dataclass(one) and own.startswith(f"{one.__name__}("):
            own = ""  # dataclasses write their signature where there is no docstring
        what = (own or (inspect.getdoc(home) if home else "") or "").split("\n\n")[0].replace("\n", " ")
        try:
            arguments = signature(one)
        except (TypeError, ValueError):
            arguments = ""
        lines.append(f"- **`{item}{arguments}`** {what}")
    return "\n".join([lines[0], "", lines[1], "", *lines[2:]])


if __name__ == "__main__":
    target = Path(__file__).with_name("api.md")
    target.write_text(page())
    print(f"wrote {target.name}: {len(target.read_text().splitlines())} lines")
