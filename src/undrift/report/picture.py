"""Screenshots of HTML pages, if chromium is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def picture(page: Path, target: Path, size: tuple[int, int]) -> bool:
    """Save a screenshot of a page at (width, height) with headless chromium. Without chromium nothing is saved, and that is
    said."""
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed: no screenshot; open the page in a browser", file=sys.stderr)
        return False
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000",
                        f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}",
                        f"--screenshot={target.resolve()}", f"file://{page.resolve()}"],
                       check=True, capture_output=True, timeout=120)  # fmt: skip
    return True
