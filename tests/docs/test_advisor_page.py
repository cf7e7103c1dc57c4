"""docs/advise.md says what the kept results of `benchmarks/advisor.py` say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("make_advisor", DOCS / "make_advisor.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_rendered_from_the_results(render):
    assert render.page() == render.PAGE.read_text()


@pytest.mark.parametrize(("name", "least"), [("advisor", 12), ("advisor-blind", 4)])
def test_every_federation_was_searched_exhaustively(render, name, least):
    found = render.lines(name)
    by_federation = {
        one: [line for line in found if line["federation"] == one] for one in {f["federation"] for f in found}
    }
    assert len(by_federation) == len(render.lines(f"{name}-answers")) >= least
    for own in by_federation.values():
        points = {(line["method"], line["lr"]) for line in own}
        assert len({method for method, _ in points}) >= 15
        assert len(points) == 3 * len({method for method, _ in points})
        assert len({(line["method"], line["lr"], line["seed"]) for line in own}) == len(own) == 3 * len(points)


def test_an_answer_is_what_its_own_numbers_say(render):
    """Regret by hand; a method is recommended only where its interval is on the right side; alike data get plain averaging."""
    for line in [*render.lines("advisor-answers"), *render.lines("advisor-blind-answers")]:
        estimate, low, high = line["difference"]
        better = high < 0 if line["headline"] == "rmse" else low > 0
        assert low <= estimate <= high
        assert line["clear"] == better
        assert line["recommended"] == (line["challenger"] if better else line["plain"])
        if line["headline"] != "rmse":
            gaps = [100 * (a - b) for a, b in zip(line["values"]["best"], line["values"]["advisor"], strict=True)]
            assert line["regret"] == pytest.approx(sum(gaps) / 3)
        if line["federation"].endswith("alike"):
            assert line["recommended"].startswith("fedavg lr=")


def test_the_streams_that_differ_by_noise_alone_have_at_most_one_winner(render):
    found = render.lines("advisor-alike")
    assert len(found) == 12
    assert sum(line["winner"] for line in found) <= 1
    assert all(line["winner"] == (line["difference"][1] > 0) for line in found if "diabetes" not in line["federation"])


def test_the_readme_shows_what_the_command_printed(render):
    readme = " ".join((DOCS.parent / "README.md").read_text().split())
    for line in render.lines("advise-example"):
        assert f"$ {line['command']} {line['text']}" in readme
