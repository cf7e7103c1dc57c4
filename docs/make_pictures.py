"""Pictures of a report: `make demo`, then `python docs/make_pictures.py runs/demo/index.html` (needs chromium).

Its top at desktop and at phone width, and its curves for the README.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SIZES = {"report.png": (1200, 2400, 1), "report-phone.png": (390, 2400, 1.5)}  # width, height, pixels per point


def main(page: Path) -> None:
    spec = importlib.util.spec_from_file_location("browser", HERE.parent / "tests" / "browser" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    browser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(browser)
    with tempfile.TemporaryDirectory() as profile, contextlib.closing(browser.Chrome(Path(profile))) as chrome:
        for name, (width, height, scale) in SIZES.items():
            chrome.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                       mobile=width < 600)  # fmt: skip
            chrome.open(page.resolve())
            time.sleep(2)  # figures are drawn after the page has loaded
            picture = chrome.ask("Page.captureScreenshot", format="png")["data"]
            (HERE / name).write_bytes(base64.b64decode(picture))
            print(f"wrote docs/{name}")
            if width > 600:
                box = chrome.value("(() => {const r = document.querySelector('#curves').getBoundingClientRect();"
                                   "return {x: r.x, y: r.y + scrollY, width: r.width, height: r.height, scale: 1}})()")  # fmt: skip
                picture = chrome.ask("Page.captureScreenshot", format="png", clip=box, captureBeyondViewport=True)[
                    "data"
                ]
                (HERE / "demo.png").write_bytes(base64.b64decode(picture))
                print("wrote docs/demo.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
