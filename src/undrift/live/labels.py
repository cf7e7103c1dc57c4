"""Samples per client and class of a run. The data are dealt again for it, which needs torch: a process of its own does it,
with the lowest priority, once per federation, when somebody asks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from undrift.live.records import RunRow
from undrift.report import plots

MOST = 200  # clients that are drawn


class Labels:
    """The figures by fingerprint of the federation."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.one = asyncio.Lock()
        self.process: asyncio.subprocess.Process | None = None

    async def of(self, row: RunRow) -> Any:
        """A figure, or a sentence."""
        fingerprint = str((row.options.get("about") or {}).get("federation") or row.key)
        async with self.one:
            if fingerprint not in self.known:
                self.known[fingerprint] = await self.dealt(row.path)
        return self.known[fingerprint]

    async def dealt(self, path: Path) -> Any:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "undrift.live.labels", str(path), stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        out, _ = await self.process.communicate()
        self.process = None
        try:
            found = json.loads(out)
        except ValueError:
            return "The data could not be dealt again."
        if "sentence" in found:
            return found["sentence"]
        return plots.label_bubbles(found["counts"], found["labels"], found["names"])

    def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


def main(path: str) -> None:
    """In the other process: print the counts as JSON."""
    os.nice(19)
    from undrift.core.errors import BadRequest, RunFailed
    from undrift.experiment.resume import rebuild_federation

    try:
        federation = rebuild_federation(Path(path))
        clients = range(min(MOST, federation.clients))
        print(json.dumps({
            "counts": [[int(number) for number in federation.counts(client)] for client in clients],
            "labels": [str(label) for label in federation.labels],
            "names": [federation.client_name(client) for client in clients],
        }))  # fmt: skip
    except (BadRequest, RunFailed, OSError) as error:
        print(json.dumps({"sentence": f"There is no figure: {error}."}))


if __name__ == "__main__":
    main(sys.argv[1])
