"""`undrift env`: the environment, to paste into a bug report."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import typer

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "cloudpickle", "typer", "rich", "plotly", "Pillow",
            "pandas", "pyarrow", "ray", "flwr", "datasets")  # fmt: skip


def add(app: typer.Typer) -> None:
    app.command("env")(env)


def env() -> None:
    """Print versions and machine for a bug report. Includes the environment variables that change results."""
    import torch

    import undrift

    lines = [("undrift", undrift.__version__), ("python", platform.python_version()), ("system", platform.platform()),
             ("cores", str(os.cpu_count())), ("cpu capability", torch.backends.cpu.get_cpu_capability()),
             ("cuda", str(torch.cuda.is_available()))]  # fmt: skip
    for name in PACKAGES:
        try:
            lines.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            lines.append((name, "—"))
    for name in (
        "UNDRIFT_DATA",
        "UNDRIFT_CACHE",
        "OMP_NUM_THREADS",
        "MKL_CBWR",
        "ONEDNN_MAX_CPU_ISA",
        "ATEN_CPU_CAPABILITY",
    ):
        if name in os.environ:
            lines.append((name, os.environ[name]))
    for name, value in lines:
        typer.echo(f"{name:16s} {value}")
