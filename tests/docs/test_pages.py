"""Pages that must agree with the code."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import re
import shlex
from pathlib import Path

import undrift as ud
from undrift.contract.context import Batch, Plan, Replies, Server
from undrift.contract.declare import Along, Array, Models, Number, Numbers
from undrift.contract.job import Job, TrainingStats
from undrift.contract.networks import Replica, Twin
from undrift.contract.parts import AXES, Part
from undrift.methods.published import PUBLISHED
from undrift.papers import papers, scales

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_api_reference_has_every_public_name_and_matches_the_docstrings():
    page = (DOCS / "api.md").read_text()
    assert [name for name in [*ud.__all__, *PUBLISHED] if not re.search(rf"\b{re.escape(name)}\b", page)] == []
    spec = importlib.util.spec_from_file_location("make_api", DOCS / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert page == module.page(), "out of date; run python docs/make_api.py"


def test_the_tables_of_keys_match_the_schemas():
    spec = importlib.util.spec_from_file_location("make_formats", DOCS / "make_formats.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "formats.md").read_text()
    assert page == module.page(), "out of date; run make formats"
    assert set(re.findall(r"<!-- keys: (\w+) -->", page)) == set(module.SCHEMAS)


def test_the_api_reference_has_all_that_a_hook_can_do():
    page = (DOCS / "api.md").read_text()
    declarations = (Number, Array, Along, Models, Numbers)  # their methods are the engine's
    for cls in (Plan, Job, TrainingStats, Batch, Twin, Replica, Server, Replies, Part, *AXES.values(), *declarations):
        assert cls.__name__ in page
        for name, found in vars(cls).items() if cls not in declarations else ():
            if not name.startswith("_") and (callable(found) or isinstance(found, property)):
                assert inspect.getdoc(found), f"{cls.__name__}.{name} has no docstring"
                assert f"**`.{name}" in page, f"{cls.__name__}.{name} is missing"
    for cls in (Plan, Job, TrainingStats, Batch, Server, Replies):
        assert [name for name in cls.__annotations__ if name[0] != "_" and f"- `{name}: " not in page] == []


OPTIONS = ("row", "column", "scale")  # of a results command


def test_every_results_command_uses_presets_rows_and_columns_that_exist():
    text = (DOCS / "results" / "run").read_text().replace("\\\n", " ")
    commands = re.findall(r"^\s+(?:[a-z0-9-]+\) )?(paper|mid) (\w+/\S+) (.*?)(?: ;;)?$", text, re.MULTILINE)
    assert len(commands) >= 8
    for command, name, options in commands:
        words = shlex.split(options)
        given = {key: [word for before, word in itertools.pairwise(words) if before == f"--{key}"] for key in OPTIONS}
        scale = given["scale"][0] if command == "paper" else "mid"
        assert scales.scaled(papers.load(name), scale, rows=given["row"], columns=given["column"]).tasks()


def test_a_results_file_is_named_after_its_preset_and_scale():
    """docs/results/run takes PAPER-PRESET-SCALE, so the name says which preset it runs."""
    files = [file for scale in ("quick", "mid") for file in (DOCS / "results").glob(f"*-{scale}.jsonl")]
    assert len(files) >= 20
    for file in files:
        line = json.loads(file.read_text().partition("\n")[0])
        assert file.stem == f"{line['preset'].replace('/', '-')}-{line['scale']}"


def test_links_between_pages_resolve():
    pages = [*DOCS.glob("*.md"), *(DOCS / "results").glob("*.md"), *ROOT.glob("*.md"), ROOT / "examples" / "README.md"]
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "index.md"} <= {page.name for page in pages}
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
