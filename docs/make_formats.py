"""Writes the tables of keys in docs/formats.md from the schemas: `python docs/make_formats.py`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from undrift.advice.race_file import AdviseFile
from undrift.advice.sketch import Sketch
from undrift.core.schema import hints_of, plain, wording
from undrift.deploy.policy import Policy
from undrift.deploy.server import RunInfo
from undrift.deploy.site_model import PersonalFile, SiteFile
from undrift.deploy.spec import DeployTable
from undrift.experiment.options import Options
from undrift.experiment.run_toml import About, RunTables
from undrift.experiment.tables import markdown_table
from undrift.papers.paper_file import PaperFile
from undrift.papers.results import ResultLine
from undrift.study.comparison import CompareFile
from undrift.study.tasks import RowLine

PAGE = Path(__file__).with_name("formats.md")
SCHEMAS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Options, RunTables, About, DeployTable, CompareFile, AdviseFile, RowLine, PaperFile, ResultLine, RunInfo, SiteFile, PersonalFile,
        Policy, Sketch,
    )
}  # fmt: skip
NOT_RECORDED = ("out", "force", "sampling", "objective", "personalize", "weighting", "combine", "server", "private")


def rows(kind: Any) -> list[list[str]]:
    """A row per key: name, what it must be, default, meaning."""
    table = [["key", "must be", "default", "meaning"]]
    hints = hints_of(kind)
    for field in dataclasses.fields(kind):
        if kind is Options and field.name in NOT_RECORDED:
            continue
        made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        default = "must be given" if made is dataclasses.MISSING else "—" if made in (None, {}, [], ()) else plain(made)
        meaning = re.sub(r" \[[^]]*\]$", "", str(field.metadata.get("help", "")))
        table.append([f"`{field.name}`", wording(hints[field.name]), default or "—", meaning])
    return table


def page() -> str:
    """The page with its tables made anew, each between `<!-- keys: NAME -->` and `<!-- end -->`."""

    def made(found: re.Match[str]) -> str:
        name = found.group(1)
        table = [[cell.replace("|", "\\|") for cell in row] for row in rows(SCHEMAS[name])]
        return f"<!-- keys: {name} -->\n{markdown_table(table, words=range(4))}\n<!-- end -->"

    return re.sub(r"<!-- keys: (\w+) -->.*?<!-- end -->", made, PAGE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page())
