"""`undrift deploy init`: a complete Flower app, ready to read and to run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import tomli_w

import undrift
from undrift import data as data_sets
from undrift.core.errors import BadRequest
from undrift.deploy.spec import Spec, at_server, made
from undrift.experiment.run_toml import option_values, provenance
from undrift.experiment.setup import Setup

TEMPLATES = Path(__file__).with_name("templates")
REFUSED = (
    "noise",
    "domains",
    "faults",
    "validation",
    "unseen",
    "diagnose",
    "ood",
    "stop_at",
    "partition",
    "clients",
    "proxy",
)


def init(
    folder: Path, given: Mapping[str, Any], words: Mapping[str, Any], show_models: bool = False
) -> tuple[Spec, Setup]:
    """Write the app of a deployment: `given` are options of a run, `words` those of `[deploy]`."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadRequest(f"{folder} is taken; name a folder that does not exist yet")
    for name in REFUSED:
        if given.get(name):
            raise BadRequest(
                f"--{name.replace('_', '-')} belongs to a simulation; real sites bring their own data and troubles"
            )
    table = {
        name: value for name, value in given.items() if name not in (*REFUSED, "out", "engine", "workers", "tolerate")
    }
    if "selection" not in table and "cohort" not in table:
        table["selection"] = "all"
    data = table.pop("data", None)
    spec = made(table, {**shape_and_labels(data, words), **words}, folder / "run.toml")
    setup = spec.setup(at_server(spec, [1] * len(spec.sites)))
    if setup.method.shows_models and not show_models:
        raise BadRequest(
            f"{setup.method.name} shows sites each other's models, from which a site may learn about another's data; "
            "--show-models says that all of them agree"
        )
    write(folder, spec, setup)
    return spec, setup


def shape_and_labels(data: Any, words: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same at all sites: named by the operator, or that of a known data set."""
    if "shape" in words and "labels" in words:
        return {}
    if data is None:
        raise BadRequest(
            "name what the sites' samples are: --shape 1,28,28 --labels cat,dog,…, or --data NAME of a known set"
        )
    source = data_sets.load(data)
    return {"shape": list(source.shape), "labels": [str(label) for label in source.classes]}


def write(folder: Path, spec: Spec, setup: Setup) -> None:
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in option_values(setup).items() if v is not None}
    for name in ("data", "partition", "clients", "workers", "engine", "tolerate", "device", "memory"):
        values.pop(name, None)  # each side's own business
    versions = {name: value for name, value in provenance(setup).items() if name in ("undrift", "layout")}
    own = own_code(values)
    package = folder / "undrift_app"
    package.mkdir(parents=True)
    (folder / "run.toml").write_text(tomli_w.dumps({**values, "deploy": spec.words(), "about": versions}))
    (package / "__init__.py").write_text("")
    for side in ("server", "client"):
        (package / f"{side}.py").write_text(
            f"from undrift.deploy.wire import {side}_app\n\napp = {side}_app(__file__)\n"
        )
    for file in own:
        shutil.copy(file, folder / file.name)
    words = {
        "name": "".join(c if c.isalnum() else "-" for c in folder.resolve().name.lower()).strip("-") or "undrift-app",
        "version": undrift.__version__, "labels": repr(list(spec.labels)), "shape": repr(spec.shape),
        "sites": " ".join(spec.everybody), "first": spec.sites[0], "method": setup.method.name,
        "include": ", ".join(f'"{name}"' for name in ("undrift_app/*.py", "run.toml", *(file.name for file in own))),
    }  # fmt: skip
    for template, target in (("pyproject.toml", "pyproject.toml"), ("README.md", "README.md"), ("data.py", "site/data.py"),
                             ("make_keys.py", "make_keys.py"), ("environment.sh", "environment.sh")):  # fmt: skip
        path = folder / target
        path.parent.mkdir(exist_ok=True)
        path.write_text(Template((TEMPLATES / f"{template}.txt").read_text()).safe_substitute(words))


def own_code(values: Mapping[str, Any]) -> list[Path]:
    """Files beside the user's feet that a model, method or loss is imported from: they travel with the app."""
    files = set()
    for name in ("model", "method", "loss"):
        text = str(values.get(name, ""))
        if ":" in text and "(" not in text and not text.startswith("object:"):
            module = sys.modules.get(text.partition(":")[0])
            file = Path(getattr(module, "__file__", None) or "")
            if file.is_file() and file.resolve().parent == Path.cwd().resolve():
                files.add(file.resolve())
    return sorted(files)
