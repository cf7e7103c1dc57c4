"""Pages that must keep up with the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import undrift as ud
from undrift.methods.published import PUBLISHED
from undrift.papers import papers

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_api_reference_names_everything_public_and_is_what_the_docstrings_say():
    page = (DOCS / "api.md").read_text()
    assert [name for name in [*ud.__all__, *PUBLISHED] if not re.search(rf"\b{re.escape(name)}\b", page)] == []
    spec = importlib.util.spec_from_file_location("make_api", DOCS / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert page == module.page(), "make it again: python docs/make_api.py"


def test_every_result_command_names_presets_rows_and_columns_that_exist():
    text = (DOCS / "results" / "run").read_text().replace("\\\n", " ")
    commands = re.findall(r"^\s+(?:[a-z0-9-]+\) )?paper (\S+) (.*)$", text, re.MULTILINE)
    assert len(commands) >= 11
    for name, words in commands:
        preset = papers.load(name)
        rows, columns = re.findall(r'--row "([^"]+)"', words), re.findall(r'--column "?([^"]+?)"? --', words)
        scale = re.findall(r"--scale (\w+)", words)[0]
        assert papers.scaled(preset, scale, rows=rows, columns=[c.strip() for c in columns]).tasks()


def test_links_between_pages_lead_somewhere():
    pages = [*DOCS.glob("*.md"), *(DOCS / "results").glob("*.md"), *ROOT.glob("*.md"), ROOT / "examples" / "README.md"]
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md"} <= {page.name for page in pages}
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
