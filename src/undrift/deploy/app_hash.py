"""The SHA-256 of an app: the operator publishes it, and a site prints that of what it was sent.

It is the hash of Flower's app bundle (FAB), which is the same for the same files. Flower unpacks what a site was sent
into `$FLWR_HOME/apps/PUBLISHER.NAME.VERSION.HASH`, and packing that folder again gives the same bundle.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from pathlib import Path

from undrift.core.errors import BadRequest

FILE = "app.sha256"  # in the app's folder, written by `deploy init`
IGNORED = ("__pycache__",)


def bundle(folder: Path) -> bytes:
    from flwr.cli.build import build_fab_from_disk

    if not (folder / "pyproject.toml").is_file():
        raise BadRequest(f"{folder} is no app: it has no pyproject.toml; name the folder that `deploy init` wrote")
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return build_fab_from_disk(folder)
    except Exception as error:  # click's exceptions and whatever a damaged pyproject.toml brings about
        raise BadRequest(f"{folder} cannot be packed: {' '.join(str(error).split())}") from None


def of(folder: Path) -> str:
    """The SHA-256 of the bundle that `flwr run` makes of an app's folder, and that Flower sends to the sites."""
    return hashlib.sha256(bundle(folder)).hexdigest()


def write(folder: Path) -> str:
    digest = of(folder)
    (folder / FILE).write_text(f"{digest}\n")
    return digest


def published(folder: Path) -> str | None:
    """The hash that `deploy init` wrote, if the file is there."""
    path = folder / FILE
    return path.read_text().strip() if path.is_file() else None


def received(home: Path | None = None) -> list[tuple[Path, str, str]]:
    """What this machine was sent, oldest first: folder, SHA-256, and a remark if the folder is not what was sent."""
    home = home or Path(os.environ.get("FLWR_HOME") or "~/.flwr").expanduser()
    if not (home / "apps").is_dir():
        raise BadRequest(f"there is no app in {home / 'apps'}; set FLWR_HOME to the SuperNode's, or join a run first")
    folders = [path for path in (home / "apps").iterdir() if (path / "pyproject.toml").is_file()]
    return [(folder, *judged(folder)) for folder in sorted(folders, key=lambda path: (path.stat().st_mtime, path.name))]


def judged(folder: Path) -> tuple[str, str]:
    """An unpacked app's SHA-256, and what speaks against it: Flower ends the folder's name with the hash's start."""
    content = bundle(folder)
    digest = hashlib.sha256(content).hexdigest()
    packed = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    present = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not set(path.parts) & set(IGNORED)
    }
    if extra := sorted(present - packed):
        return digest, f"it also holds {', '.join(extra)}"
    named = folder.name.rpartition(".")[2]
    return digest, "" if digest.startswith(named) else f"it was sent as {named}…, and was changed here"
