"""A page as a picture, where chromium is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


def picture(page: Path, target: Path, size: tuple[int, int]) -> None:
    """Drawn by headless chromium at a width and height; left out with a sentence where there is none."""
    browser = shutil.which("chromium")
    if browser is None:
        print("no chromium: the page can be opened in any browser, the picture is left out")
        return
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000",
                        f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}",
                        f"--screenshot={target.resolve()}", f"file://{page.resolve()}"],
                       check=True, capture_output=True, timeout=120)  # fmt: skip
