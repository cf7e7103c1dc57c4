"""One headless browser for all tests of a file, controlled through its debugging pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1200,1000", "--remote-debugging-pipe",
)  # fmt: skip
LEFT = "Inspected target navigated or closed"  # the answer to a question that a page did not live to hear


class Chrome:
    """The browser reads commands from file descriptor 3 and answers on 4: JSON, each message ended by a zero byte."""

    def __init__(self, profile: Path) -> None:
        browser = shutil.which("chromium")
        assert browser, "chromium is not installed; .ci/run does it"
        (theirs_in, self._to), (self._from, theirs_out) = os.pipe(), os.pipe()
        # High numbers first: the pipes themselves may be 3 and 4.
        inherited = [os.dup2(end, 60 + place) for place, end in enumerate((theirs_in, theirs_out))]
        command = ["bash", "-c", 'exec "$0" "$@" 3<&60 4>&61', browser, *FLAGS, f"--user-data-dir={profile}"]
        for end in inherited:
            os.set_inheritable(end, True)
        self.process = subprocess.Popen(
            command, pass_fds=inherited, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        for end in (theirs_in, theirs_out, *inherited):
            os.close(end)
        self._rest, self._number, self._session = b"", 0, {}
        self.errors, self.loaded = list[str](), False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if answer.get("error", {}).get("message") == LEFT:
                    return {"result": {}}
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], 60)
            piece = os.read(self._from, 1 << 20) if ready else b""
            assert piece, "the browser ended, or sent nothing for a minute"
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        event: dict[str, Any] = json.loads(message)
        self._notice(event)
        return event

    def _notice(self, event: dict[str, Any]) -> None:
        method, given = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(given["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "assert"):
            self.errors.append(json.dumps(given["args"])[:500])

    def open(self, page: Path | str) -> None:
        """Load a file, or the page of an address. `errors` then holds every error of its console."""
        self.errors = []
        self.ask("Page.navigate", url=page if isinstance(page, str) else f"file://{page}")
        self.loaded = False  # only now: an event of the previous page may have arrived in between
        while not self.loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """What the page says; None if it is being left at this moment."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str, seconds: float = 30.0) -> bool:
        """Whether the expression becomes true within so many seconds."""
        end = time.monotonic() + seconds
        while not (holds := bool(self.value(expression))) and time.monotonic() < end:
            time.sleep(0.02)
        return holds

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    with contextlib.closing(Chrome(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser
