"""Screenshots of HTML pages, if chromium is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


def picture(page: Path, target: Path, size: tuple[int, int]) -> None:
    """Save a screenshot of a page at (width, height) with headless chromium; without chromium, print that it is skipped."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: no screenshot; open the page in a browser")
        return
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000",
                        f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}",
                        f"--screenshot={target.resolve()}", f"file://{page.resolve()}"],
                       check=True, capture_output=True, timeout=120)  # fmt: skip
