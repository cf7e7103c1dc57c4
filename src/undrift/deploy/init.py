"""`undrift deploy init`: writes a complete Flower app."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import tomli_w

import undrift
from undrift.core.errors import BadRequest
from undrift.core.user_code import user_files
from undrift.data.dataset import DataSet
from undrift.deploy import proxy, site_template
from undrift.deploy.from_run import OF_DATA, source_of, task_of
from undrift.deploy.spec import Spec, from_tables, server_federation
from undrift.experiment.foreign_code import foreign_code
from undrift.experiment.run_toml import option_values, provenance
from undrift.experiment.setup import Setup

TEMPLATES = Path(__file__).with_name("templates")
SIMULATION_ONLY = (
    "noise", "domains", "faults", "validation", "unseen", "diagnose", "ood", "stop_at", "partition", "clients", "proxy",
)  # fmt: skip


@dataclass(frozen=True)
class Places:
    """Where the sites connect, and where the SuperLink listens for the operator and the proxy: HOST:PORT."""

    address: str = proxy.ADDRESS
    superlink: str = proxy.SUPERLINK

    def __post_init__(self) -> None:
        for text in (self.address, self.superlink):
            proxy.host_and_port(text)
        if self.address == self.superlink:
            raise BadRequest(f"the sites' address and the SuperLink's are both {self.address}; they must differ")


def init(
    folder: Path,
    options: Mapping[str, Any],
    deploy_options: Mapping[str, Any],
    show_models: bool = False,
    places: Places | None = None,
) -> tuple[Spec, Setup]:
    """Write the app of a deployment: `options` are those of a run, `deploy_options` those of the table `[deploy]`."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadRequest(f"{folder} exists already; name a folder that does not exist yet")
    for name in SIMULATION_ONLY:
        if options.get(name):
            raise BadRequest(
                f"--{name.replace('_', '-')} is an option of simulations only; leave it out of a deployment"
            )
    excluded = (*SIMULATION_ONLY, "out", "engine", "workers", "tolerate")
    table = {name: value for name, value in options.items() if name not in excluded}
    if "selection" not in table and "cohort" not in table:
        table["selection"] = "all"
    of_data = {name: table.pop(name, None) for name in OF_DATA}
    source = source_of({**of_data, "task": table.get("task")})
    table |= task_of(source, table.get("task"))
    deploy_table = {**shape_and_labels(source, deploy_options, table.get("task")), **deploy_options}
    spec = from_tables(table, deploy_table, folder / "run.toml")
    setup = spec.setup(server_federation(spec, [1] * len(spec.sites)))
    if setup.method.shows_models and not show_models:
        raise BadRequest(
            f"{setup.method.name} shows sites each other's models, from which a site may learn about another's data; "
            "give --show-models if all sites agree"
        )
    write(folder, spec, setup, places or Places(), site_template.values(source, of_data, spec))
    return spec, setup


def shape_and_labels(source: DataSet | None, deploy_options: Mapping[str, Any], task: Any = None) -> dict[str, Any]:
    """Sample shape and labels, the same at all sites: those of the data, unless the operator gives them. A task without
    classes needs no labels."""
    if source is not None:
        return {"shape": list(source.shape), "labels": [str(label) for label in source.classes]}
    if "shape" not in deploy_options or ("labels" not in deploy_options and task is None):
        raise BadRequest(
            "the sites' sample shape and labels are missing; give --shape 1,28,28 --labels cat,dog,…, or --data NAME"
        )
    return {}


def write(folder: Path, spec: Spec, setup: Setup, places: Places, of_samples: Mapping[str, str]) -> None:
    options = {
        name: list(v) if isinstance(v, tuple) else v for name, v in option_values(setup).items() if v is not None
    }
    for name in ("data", "partition", "clients", "workers", "engine", "tolerate", "device", "memory"):
        options.pop(name, None)  # the server and each site choose their own
    versions = {
        name: value for name, value in provenance(setup).items() if name in ("undrift", "layout", "base", "code")
    }
    own_code = user_files(foreign_code(options))
    package = folder / "undrift_app"
    package.mkdir(parents=True)
    (folder / "run.toml").write_text(
        tomli_w.dumps({**options, "deploy": spec.deploy_table(), "about": versions}), "utf-8"
    )
    (package / "__init__.py").write_text("")
    for side in ("server", "client"):
        (package / f"{side}.py").write_text(
            f"from undrift.deploy.wire import {side}_app\n\napp = {side}_app(__file__)\n"
        )
    for name, file in own_code.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / name)
    # With a leading slash, or a copy of them further down would count: Flower unpacks apps below this folder (environment.sh).
    included = tuple(f"/{name}" for name in ("undrift_app/*.py", "run.toml", *own_code))
    host, port = proxy.host_and_port(places.superlink)
    values = {
        "address": places.address,
        "sites_host": proxy.host_and_port(places.address)[0],
        "superlink": places.superlink,
        "superlink_host": host,
        "superlink_port": port,
        "listen": proxy.listen(places.address),
        **of_samples,
        "name": "".join(c if c.isalnum() else "-" for c in folder.resolve().name.lower()).strip("-") or "undrift-app",
        "version": undrift.__version__,
        "labels": repr(list(spec.labels)),
        "headline": setup.plan.task.headline,
        "shape": repr(spec.shape),
        "sites": " ".join(spec.all_sites),
        "first": spec.sites[0],
        "method": setup.method.name.replace('"', "'"),
        "include": ", ".join(f'"{name}"' for name in included),
    }
    for target in (
        "pyproject.toml", "README.md", "site/data.py", "site/policy.toml", "make_keys.py", "environment.sh", "proxy/nginx.conf",
    ):  # fmt: skip
        path = folder / target
        path.parent.mkdir(exist_ok=True)
        template = Template((TEMPLATES / f"{path.name}.txt").read_text("utf-8"))
        path.write_text(template.safe_substitute(values), "utf-8")
