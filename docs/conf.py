"""Sphinx configuration of `make docs`. Pages are the Markdown files of docs/ and those that make_pages.py writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import make_pages

import undrift

project = "Undrift"
author = "The Undrift authors"
copyright = "The Undrift authors"
version = release = undrift.__version__

extensions = ["myst_parser"]
exclude_patterns = ["_build", "changelog.md", "results/templates"]  # the changelog's page is CHANGELOG.md
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Undrift"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

CONTENTS = {
    "Use it": [
        "tutorial",
        "tutorial-2",
        "generated/examples",
        "data",
        "tasks",
        "evaluation",
        "comparing",
        "advise",
        "watch",
        "methods",
        "adapters",
        "privacy",
        "models",
        "attacks",
        "deploy",
        "scale",
        "coming-from",
    ],
    "Look it up": [
        "api",
        "formats",
        "stability",
        "papers",
        "results/README",
        "results/claims",
        "results/tables",
        "results/controls",
        "results/costs",
        "results/table6",
        "results/who-survives",
        "results/odd-clients",
        "benchmarks",
    ],
    "Work on it": ["design", "generated/contributing", "generated/changelog"],
}
METHODS: list[str] = []


def contents() -> str:
    """The tables of contents. They are not in index.md, because a git host would show them as code."""
    trees = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```"
        for caption, names in CONTENTS.items()
    ]
    return "\n\n".join(trees)


def read(app: Any, page: str, source: list[str]) -> None:
    """Adapt a page to the site: its links, and what a git host cannot show."""
    if page.startswith("generated/"):
        return
    text = make_pages.relinked(source[0], (make_pages.DOCS / page).parent)
    if page == "index":
        text += "\n\n" + contents()
    if page == "results/tables":  # written by docs/results/run, section after section, without a title
        text = "# All tables\n\n" + re.sub(r"^###", "##", text, flags=re.M)
    if page == "methods":
        for name in METHODS:
            text = re.sub(rf"^\| {re.escape(name)} \|", f"| [{name}](/generated/methods/{name}.md) |", text, flags=re.M)
        text += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(f"generated/methods/{name}" for name in METHODS) + "\n```"
    source[0] = text


def setup(app: Any) -> None:
    METHODS[:] = make_pages.write()
    app.connect("source-read", read)
