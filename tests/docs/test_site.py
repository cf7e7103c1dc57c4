"""What `make docs` and `make dist` rely on, without a build."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from undrift.cli import command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["fedavg", "flood", "fedfomo"])
def test_a_methods_page_has_everything_that_the_command_prints(pages, capsys, name):
    assert command(["methods", name, "--json"]) == 0
    method = json.loads(capsys.readouterr().out)
    page = pages.method_page(method)
    for text in [method["what"], method["paper"], *method["parts"], *method["parameters"], *method["laws"]]:
        assert text in page
    for text in method["about"]:
        assert text.partition("\n")[2].strip("\n") in page
    assert len(re.findall(r"^- `\w+`: ", page, re.MULTILINE)) == len(method["sends"])
    assert page.count(f"{method['costs']['model']:,}") == 2


def test_links_are_adapted_to_the_site_and_others_stay(pages):
    text = "[a](docs/tutorial.md#x) [b](CHANGELOG.md) [c](https://example.org/d.md) [d](no-such-file.md) [e](#here) [f](LICENSE)"
    assert pages.relinked(text, ROOT) == (
        "[a](/tutorial.md#x) [b](/generated/changelog.md) [c](https://example.org/d.md) [d](no-such-file.md) [e](#here) "
        "[f](/../LICENSE)"
    )


def test_every_page_is_in_the_contents():
    conf = (ROOT / "docs" / "conf.py").read_text()
    docs = ROOT / "docs"
    for page in [*docs.glob("*.md"), *(docs / "results").glob("*.md")]:
        name = str(page.relative_to(docs).with_suffix(""))
        assert name in ("index", "changelog") or f'"{name}"' in conf, name


def test_the_wheel_contains_every_file_of_the_package():
    package = ROOT / "src" / "undrift"
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["undrift"]
    taken = {file for pattern in globs for file in package.glob(pattern)}
    other = {f for f in package.rglob("*") if f.is_file() and f.suffix != ".py" and "__pycache__" not in f.parts}
    assert sorted(other - taken) == []
    assert {file.suffix for file in other} >= {".css", ".js", ".toml", ".txt", ".typed"}


def test_the_citation_has_the_version():
    import undrift

    assert f"\nversion: {undrift.__version__}\n" in (ROOT / "CITATION.cff").read_text()
