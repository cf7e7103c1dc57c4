"""What is said about results is rendered from the result files, and the verdict chooses the words."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from undrift.methods import evidence
from undrift.papers import papers, sentences

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
FORBIDDEN = r"\b(ahead|behind|better|worse|beats?|outperforms?|reproduces?|wins?|gains? nothing|costs? nothing)\b"


@pytest.fixture(scope="module")
def render():
    spec = importlib.util.spec_from_file_location("render_results", RESULTS / "render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_page_is_what_the_files_give(render):
    pages = render.rendered()
    assert {path.relative_to(ROOT).as_posix() for path in pages} == {
        "README.md", "docs/evaluation.md", "docs/results/README.md", "docs/results/claims.md",
        "docs/results/controls.md", "docs/results/costs.md",
        "docs/results/tables.md", "docs/results/table6.md", "docs/benchmarks.md",
        "docs/results/odd-clients.md", "docs/results/who-survives.md", "src/undrift/methods/findings.json",
        "src/undrift/papers/minutes.json",
    }  # fmt: skip
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name}: run docs/results/run tables"


def test_templates_leave_the_verdict_to_the_files(render):
    """Between the expressions no template says who is ahead: only *emphasised* words of the legend and headings may."""
    for template in render.TEMPLATES.glob("*.md"):
        typed = re.sub(r"\{\{.+?\}\}|\*[^*]+\*", "", template.read_text(), flags=re.DOTALL)
        found = [word for word in re.findall(FORBIDDEN, typed) if word]
        assert found == [], template.name


def copied(tmp_path: Path, name: str, change) -> Path:
    """A copy of a results file in which every line went through `change`."""
    lines = [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]
    file = tmp_path / f"{name}.jsonl"
    file.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))
    return file


def test_a_changed_sign_turns_the_sentence_round(tmp_path):
    def found(gap: float) -> str:
        def change(line):
            if line["row"] == "FedNolowe":
                line["curve"] = [0.7 + gap + line["seed"] / 1000] * 50
            if line["row"] == "FedASL":
                line["curve"] = [0.7 + 2 * line["seed"] / 1000] * 50
            return line

        file = copied(tmp_path, "fednolowe-table3", change)
        return sentences.of_preset(file).against("FedNolowe", "FedASL", ["10 %"])

    assert found(0.1).startswith("FedNolowe is ahead of FedASL (+9.9 [+9.7, +10.1]")
    assert found(-0.1).startswith("FedNolowe is behind FedASL (−10.1 [")
    assert found(0.001).startswith("FedNolowe cannot be distinguished from FedASL (0.0 [")


def test_one_changed_number_changes_the_text(tmp_path, render):
    file = copied(tmp_path, "fednolowe-table3", lambda line: line)
    before = sentences.of_preset(file).mean("FedNolowe", "10 %")
    done = []

    def change(line):
        if line["row"] == "FedNolowe" and not done:
            done.append(line)
            line["curve"] = [min(1.0, value + 0.01) for value in line["curve"]]
        return line

    assert sentences.of_preset(copied(tmp_path, "fednolowe-table3", change)).mean("FedNolowe", "10 %") != before


def test_words_follow_the_verdict_and_one_seed_is_called_one():
    numbers = {("a", "x", s): 90.0 + s for s in range(3)} | {("b", "x", s): 80.0 + s + s * s / 10 for s in range(3)}
    found = sentences.Results("r", {"G": numbers}, {})
    assert found.against("a", "b").startswith("a is ahead of b (+9.8 [")
    assert found.against("b", "a").startswith("b is behind a (−9.8 [")
    assert found.near("a", "b", 1.5).startswith("a is not within 1.5 of b")
    assert found.group(["b"], "a", "x").startswith("b is behind a (")
    one = sentences.Results("r", {"G": {key: x for key, x in numbers.items() if key[2] == 0}}, {})
    assert one.against("a", "b") == "a is at this seed above b (+10.0, one seed)"
    assert (found.seeds(), one.seeds()) == ("three seeds", "one seed")
    assert found.mean("a", "x") == "91.0 ± 1.0"
    assert one.mean("a", "x") == "90.0"
    with pytest.raises(KeyError, match="has no 'c'"):
        found.mean("c", "x")


def test_runs_of_different_lengths_are_named_in_the_clause():
    found = sentences.Results(
        "r", {"G": {("a", "x", 0): 1.0, ("b", "x", 0): 0.0}}, {("a", "x", 0): 100, ("b", "x", 0): 200}
    )
    assert found.against("a", "b") == "a is at this seed above b (+1.0, one seed, 100 and 200 rounds)"


def test_filling_and_wrapping(render):
    text = render.wrapped(render.filled("- one {{1 + 1}} " + "word " * 40 + "\n\n| a | b |\n|---|---|\n", {}))
    assert text.startswith("- one 2 word")
    assert all(len(line) <= 120 for line in text.splitlines())
    assert text.endswith("| a | b |\n|---|---|\n")


def test_the_findings_are_shipped_with_the_package():
    assert evidence.findings("flood")
    assert evidence.findings("krum")
    assert not evidence.findings("moon")
    for name, entries in evidence.shipped().items():
        for entry in entries:
            assert re.search(r"seed|\[", entry["sentence"]), f"{name}: a finding without its interval or seeds"
            assert (ROOT / entry["where"].rpartition(": ")[2]).exists()
    assert '"methods/*.json"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.slow
def test_changing_one_number_fails_the_check(tmp_path, render):
    """The whole command, on a copy of the result files with one number changed."""
    shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("*.png", "*.html"))
    file = tmp_path / "results" / "demo.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    best = max(lines, key=lambda line: line["accuracy"])
    best["accuracy"] -= 0.3
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    pages = render.rendered(tmp_path / "results")
    changed = {path.name for path, text in pages.items() if path.read_text() != text}
    assert changed == {"README.md"}


def test_fedmas_matching_is_counted_as_by_hand():
    """LeNet-5: 32 × 26, 64 × 801, 256 × 1025 and 128 × 257 numbers in the layers that are matched, four of five clients."""
    lines = [json.loads(line) for line in (RESULTS / "table6.jsonl").read_text().splitlines()]
    layers = [(32, 26), (64, 801), (256, 1025), (128, 257)]
    counted = {(line["model"], line["method"]): line for line in lines}
    lenet = counted["lenet5-bn", "fedma@uniform"]
    assert lenet["server_products"] == 4 * sum(2 * n * d * n for n, d in layers) == 597_540_864
    assert lenet["server_assignments"] == 4 * sum(n**3 for n, _ in layers) == 76_677_120
    for line in lines:
        if "by_hand" in line:
            assert [line["server_products"], line["server_assignments"]] == line["by_hand"]
        else:
            assert line["server_products"] == line["server_assignments"] == 0
    # The CNN: 32 × 10, 64 × 289, 128 × 577 and 512 × 1153
    cnn = counted["cnn3", "fedma@uniform"]
    assert cnn["server_products"] == 4 * sum(2 * n * d * n for n, d in ((32, 10), (64, 289), (128, 577), (512, 1153)))


# ---- the page of claims ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claims_page(render):
    from claims_page import ClaimsPage

    return ClaimsPage(RESULTS)


def test_every_claim_is_counted_once_and_has_a_row(claims_page):
    counts = [[cell.strip() for cell in line.split("|")[1:-1]] for line in claims_page.counts().splitlines()[2:]]
    for _, claims, *parts, _ in counts:
        assert int(claims) == sum(map(int, parts))
    every = [papers.load(name) for name in papers.names()]
    of_papers = [preset for preset in every if not preset.name.startswith("controls/")]
    said = [claim.sentence for preset in of_papers for claim in preset.claims]
    untestable = sum(len(preset.untestable) for preset in of_papers)
    assert int(counts[-1][1]) == sum(not sentence.startswith("Control: ") for sentence in said) + untestable
    for paper in claims_page.untestable:
        own = [preset for preset in every if preset.name.startswith(f"{paper}/")]
        assert len(claims_page.cells(paper)) == 1 + sum(len(preset.claims) + len(preset.untestable) for preset in own)


def test_the_page_on_its_own_needs_no_other_file_and_has_every_sentence(claims_page, tmp_path):
    claims_page.write(tmp_path / "claims.html")
    page = html.unescape((tmp_path / "claims.html").read_text())
    assert "http" not in re.sub(r"http://www.w3.org[^\"']*", "", page)
    for one in claims_page.every:
        assert one.claim.sentence in page
    assert claims_page.total() in page


def test_a_decided_claim_is_quoted_in_the_paragraph_of_its_paper(tmp_path, render):
    """FedNolowe far above uniform weights in all columns: the control on a par comes out false, and is said to."""
    from claims_page import ClaimsPage

    def change(line):
        level = 0.9 if line["row"] == "FedNolowe" else 0.5
        return {**line, "curve": [level + line["seed"] / 1000 * (line["row"] == "FedNolowe")] * 50}

    copied(tmp_path, "fednolowe-table3-quick", change)
    found = ClaimsPage(tmp_path)
    assert "Controls that come out false: “FedNolowe is on a par with FedAvg under uniform weights”" in found.paragraph(
        "fednolowe"
    )
    assert "“FedNolowe is ahead of FedAvg (by size) at 10 %” (fednolowe/table3, quick)" in found.paragraph("fednolowe")
    assert found.paragraph("fedbss").endswith("No control has been run.")
    assert "What does not hold: “FedNolowe is on a par with FedProx”" in found.paragraph("fednolowe")
