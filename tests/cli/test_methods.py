"""`undrift methods`: its costs are counted, and docs/methods.md is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from undrift.bench.catalogue import describe
from undrift.methods import evidence
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED

ROOT = Path(__file__).parents[2]
PARTS = [f"{axis}.{name}" for axis, table in part_tables().items() for name in table]


def test_the_committed_table_is_up_to_date(undrift):
    result = undrift("methods", "--markdown")
    assert result.code == 0
    assert (ROOT / "docs" / "methods.md").read_text() == result.out, (
        "run `undrift methods --markdown > docs/methods.md`"
    )


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_a_law_file_that_names_it(part):
    file = ROOT / "tests" / "laws" / f"{evidence.laws(part)}.py"
    assert file.exists()
    text = file.read_text()
    name = part.partition(".")[2]
    assert name in text or part in evidence.PLAIN


def test_findings_are_of_methods_that_exist_and_say_where_they_were_measured():
    for name in evidence.shipped():
        findings = evidence.findings(name)
        assert name in PUBLISHED or name in PARTS
        for finding in findings:
            assert finding.sentence
            assert (ROOT / finding.where.rpartition(": ")[2]).exists()


def test_a_page_says_what_it_costs_and_whether_the_server_could_rebuild_a_personal_model(undrift):
    fliu, ditto, flood = (undrift("methods", name).out for name in ("fliu", "ditto", "flood"))
    assert "personal model: the server could rebuild it" in fliu
    assert "personal model: the server cannot rebuild it" in ditto
    assert "personal model: none" in flood
    assert "beyond training: 1\n" in flood
    assert "tests/laws/test_dac.py, tests/laws/test_flood.py" in flood
    assert "controls: " in flood
    assert "not measured yet" in undrift("methods", "moon").out


def test_the_table_has_a_line_for_every_method_with_what_it_sends_and_costs(undrift):
    lines = {line.split()[0]: line for line in undrift("methods").out.splitlines() if line.strip()}
    assert set(PUBLISHED) <= set(lines)
    assert "phi: one number" in lines["flood"]
    assert "dac, flood" in lines["flood"]
    assert "2 per epoch" in lines["moon"]


def test_parts_of_one_name_are_found_by_their_axis():
    assert describe("weighting.flood")["costs"]["passes"] == 1
    assert describe("sampling.flood")["costs"]["passes"] == 0
    assert describe("momentum")["name"] == "server.momentum"
