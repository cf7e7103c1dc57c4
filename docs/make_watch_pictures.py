"""Pictures of the live page, light and dark: `python docs/make_watch_pictures.py FOLDER` (needs chromium and the extra `live`).

FOLDER has a comparison (the first one is shown), a run and a deployment (the first ones of each).
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from undrift.live.index import Index

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
WIDTH, HEIGHT = 1180, {"runs": 1500, "comparison": 1500, "run": 1300, "deployment": 1100}
DRAWN = (
    "[...document.querySelectorAll('.plotly-graph-div')].filter(d => !d.closest('details:not([open])'))"
    ".every(d => d.classList.contains('js-plotly-plot')) && !!document.querySelector('.js-plotly-plot')"
)


def loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    from PIL import Image

    browser, servers = (
        loaded("browser", TESTS / "browser" / "conftest.py"),
        loaded("servers", TESTS / "live" / "test_server.py"),
    )
    index = Index([folder])
    index.poll()
    alone = [row for row in index.runs.values() if "/" not in row.key]
    run, deployment = (next(row.key for row in alone if row.deployment == flag) for flag in (False, True))
    pages = {
        "runs": "/",
        "comparison": f"/study?id={quote(next(iter(index.studies)))}",
        "run": f"/run?id={quote(run)}",
        "deployment": f"/deployment?id={quote(deployment)}",
    }
    with (
        tempfile.TemporaryDirectory() as profile,
        servers.watching(str(folder)) as server,
        contextlib.closing(browser.Chrome(Path(profile))) as chrome,
    ):
        for theme in ("light", "dark"):
            chrome.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            for name, path in pages.items():
                chrome.ask(
                    "Emulation.setDeviceMetricsOverride",
                    width=WIDTH,
                    height=HEIGHT[name],
                    deviceScaleFactor=1,
                    mobile=False,
                )
                chrome.open(f"http://127.0.0.1:{server.port}{path}")
                assert chrome.until(DRAWN), path
                time.sleep(3)  # the slower figures of the page
                assert chrome.until(DRAWN), path
                assert chrome.errors == []
                picture = base64.b64decode(chrome.ask("Page.captureScreenshot", format="png")["data"])
                place = HERE / f"watch-{name}-{theme}.png"
                Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
                    place, optimize=True
                )
                print(f"wrote docs/{place.name}: {place.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
