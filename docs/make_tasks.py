"""Run the examples of tasks and keep what they print; render docs/tasks.md and docs/shapes.png from what was kept.

    .venv/bin/python docs/make_tasks.py [shakespeare] [diabetes] [shapes] [--figures]

Named examples are run again (UNDRIFT_DATA must hold the plays), and their lines of docs/tasks.jsonl replaced. A test renders
the page again and compares. `--figures` also writes docs/diabetes.png, which needs chromium.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "tasks.md"
RESULTS = DOCS / "tasks.jsonl"
EXAMPLES = ("shakespeare", "diabetes", "shapes")


def run(name: str, figures: bool) -> dict[str, object]:
    """Run an example: what it printed, with command, machine, date and seed. Its picture is copied beside the page."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        command = [sys.executable, str(DOCS.parent / "examples" / f"{name}.py"), folder]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = round(time.monotonic() - began)
        if (drawn := Path(folder) / f"{name}.png").exists():
            shutil.copyfile(drawn, DOCS / drawn.name)
        if figures and name == "diabetes":
            from undrift.report.picture import picture

            picture(Path(folder) / "diabetes.html", DOCS / "diabetes.png", (900, 500))
    return {
        "example": name,
        "command": f"python examples/{name}.py",
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seeds": [0],
        "seconds": seconds,
        "printed": printed.rstrip().splitlines(),
    }


def machine() -> str:
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{models[0] if models else 'unknown'}, {os.cpu_count()} cores"


def kept() -> dict[str, dict]:
    return (
        {row["example"]: row for row in map(json.loads, RESULTS.read_text().splitlines())} if RESULTS.exists() else {}
    )


def block(name: str) -> str:
    """The printed lines, with where they come from."""
    if (row := kept().get(name)) is None:
        return ""
    lines = "\n".join(row["printed"])
    when = f"`{row['command']}` ({row['machine']}, {row['date']}, seed {row['seeds'][0]}, {row['seconds']} s) prints:"
    return f"{when}\n\n```text\n{lines}\n```\n"


def rendered(text: str) -> str:
    for name in EXAMPLES:
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        body = block(name)
        text = pattern.sub(lambda match, body=body: match.group(1) + body + match.group(2), text)
    return text


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    rows = kept() | {name: run(name, "--figures" in sys.argv) for name in asked}
    RESULTS.write_text("".join(json.dumps(rows[name], ensure_ascii=False) + "\n" for name in EXAMPLES if name in rows))
    PAGE.write_text(rendered(PAGE.read_text()))
