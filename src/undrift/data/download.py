"""Downloads from the canonical source. Each file is checked before it is stored.

The checksums are SHA-256 of the *decompressed* content, taken from copies that were verified against the sums published
by the authors. Compression may differ from host to host, the data may not.
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
    """`sums` pairs a file's name on disk with its SHA-256. With `archive` all files are members of that tar."""

    url: str
    folder: str
    sums: tuple[tuple[str, str], ...]
    archive: str = ""

    def into(self, root: Path) -> None:
        """Fetch, check and store every file under root/folder. Existing files are not fetched again."""
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
            f"{path.name} from {url} has the wrong SHA-256 and was discarded; try again or fetch it by hand"
        )
    building = path.with_name(f".{path.name}.part")
    building.write_bytes(content)
    building.replace(path)


def fetch(url: str) -> bytes:
    """The body of a URL, with a progress bar in a terminal."""
    import urllib.request  # imported here, because only a download needs it

    with urllib.request.urlopen(url, timeout=30) as reply:
        size = int(reply.headers.get("Content-Length") or 0)
        with _Progress(url.rsplit("/", 1)[-1], size) as advance:
            blocks = []
            while block := reply.read(BLOCK):
                blocks.append(block)
                advance(len(block))
    return b"".join(blocks)


# The errors of an unreachable host, an interrupted transfer, or an HTML page instead of a file.
FAILURES = (OSError, EOFError, zlib.error)


class _Progress:
    """A bar on stderr in a terminal, else one plain line."""

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
