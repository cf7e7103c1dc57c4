"""Tables in a terminal, as Markdown and on a page."""

from __future__ import annotations

from undrift.experiment.tables import markdown_table, text_table
from undrift.report.page import is_numeric, table

ROWS = [["method", "G", "why"], ["a|b", "7.5", "short"], ["longer", "12.25", "x"]]


def test_text_is_aligned_left_and_numbers_right():
    assert text_table(ROWS, words=(0, 2)).splitlines() == [
        "method      G  why", "──────  ─────  ─────", "a|b       7.5  short", "longer  12.25  x",
    ]  # fmt: skip


def test_a_bar_in_a_markdown_cell_is_escaped():
    assert markdown_table(ROWS, words=(0, 2)).splitlines() == [
        "| method | G | why |", "| --- | ---: | --- |", "| a\\|b | 7.5 | short |", "| longer | 12.25 | x |",
    ]  # fmt: skip


def test_a_column_of_a_page_is_numeric_when_most_of_its_cells_are_numbers():
    assert is_numeric(["88.6 ± 1.2", "+4.63 [-2.68, +11.94]", "-0.5", "−3", "", "—"])
    assert is_numeric(["90.1", "90.2", "90.3", "90.4", "failed"])
    assert not is_numeric(["digits", "20", "0.05", "sgd"])
    assert "<td>a|b</td><td class=number>7.5</td><td>short</td>" in table(ROWS)
    assert "<td class=long>" in table([["what", "why"], ["a", "word " * 20]])
