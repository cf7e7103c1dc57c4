"""Downloads from the canonical source, each file checked before anybody reads it.

The checksums are SHA-256 of the *decompressed* content, taken from copies that were verified against the sums published
by the authors; compression may differ from host to host, the data may not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from undrift.core.errors import BadRequest

BLOCK = 1 << 18


@dataclass(frozen=True)
class Download:
    """`sums` maps a file's name (as it will lie on disk) to its SHA-256. With `archive` all are members of that tar."""

    url: str
    folder: str
    sums: tuple[tuple[str, str], ...]
    archive: str = ""

    def into(self, root: Path) -> None:
        """Fetch, check and store every file under root/folder; a file that is there already is left alone."""
        target = root / self.folder
        target.mkdir(parents=True, exist_ok=True)
        wanted = {name: sha for name, sha in self.sums if not (target / name).is_file()}
        if self.archive and wanted:
            import tarfile

            held = io.BytesIO(fetch(self.url + self.archive))
            try:
                with tarfile.open(fileobj=held) as tar:
                    members = {Path(member.name).name: member for member in tar.getmembers() if member.isfile()}
                    for name, sha in wanted.items():
                        file = tar.extractfile(members[name]) if name in members else None
                        _store(target / name, file.read() if file else b"", sha, self.url + self.archive)
            except tarfile.TarError as error:
                raise OSError(f"{self.archive}: {error}") from None
            return
        for name, sha in wanted.items():
            _store(target / name, gzip.decompress(fetch(f"{self.url}{name}.gz")), sha, self.url)


def _store(path: Path, content: bytes, sha: str, url: str) -> None:
    if hashlib.sha256(content).hexdigest() != sha:
        raise BadRequest(
            f"{path.name} from {url} has the wrong SHA-256 and was thrown away; try again or fetch it by hand"
        )
    building = path.with_name(f".{path.name}.part")
    building.write_bytes(content)
    building.replace(path)


def fetch(url: str) -> bytes:
    """The body of a URL, with a progress bar where somebody watches."""
    import urllib.request  # only those who download pay for its import

    with urllib.request.urlopen(url, timeout=30) as reply:
        size = int(reply.headers.get("Content-Length") or 0)
        with _Progress(url.rsplit("/", 1)[-1], size) as advance:
            blocks = []
            while block := reply.read(BLOCK):
                blocks.append(block)
                advance(len(block))
    return b"".join(blocks)


# What a dead host, a cut line or a page instead of a file lead to.
FAILURES = (OSError, EOFError, zlib.error)


class _Progress:
    """A bar on stderr in a terminal, one plain line elsewhere."""

    def __init__(self, name: str, size: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
        self._task = self._bar.add_task(name, total=size or None)
        if not sys.stderr.isatty():
            print(f"downloading {name}", file=sys.stderr)

    def __enter__(self) -> Callable[[int], None]:
        self._bar.start()
        return lambda count: self._bar.update(self._task, advance=count)

    def __exit__(self, *problem: object) -> None:
        self._bar.stop()
