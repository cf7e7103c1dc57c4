"""Tables for a terminal, as Markdown and on a page."""

from __future__ import annotations

from undrift.experiment.tables import markdown_table, text_table
from undrift.report.page import of_numbers, table

ROWS = [["method", "G", "why"], ["a|b", "7.5", "short"], ["longer", "12.25", "x"]]


def test_words_stand_left_and_numbers_right():
    assert text_table(ROWS, words=(0, 2)).splitlines() == [
        "method      G  why", "──────  ─────  ─────", "a|b       7.5  short", "longer  12.25  x",
    ]  # fmt: skip


def test_as_markdown_too_and_a_bar_in_a_cell_does_not_open_another():
    assert markdown_table(ROWS, words=(0, 2)).splitlines() == [
        "| method | G | why |", "| --- | ---: | --- |", "| a\\|b | 7.5 | short |", "| longer | 12.25 | x |",
    ]  # fmt: skip


def test_on_a_page_a_column_is_of_numbers_when_nearly_all_that_is_said_are():
    assert of_numbers(["88.6 ± 1.2", "+4.63 [-2.68, +11.94]", "-0.5", "−3", "", "—"])
    assert of_numbers(["90.1", "90.2", "90.3", "90.4", "failed"])
    assert not of_numbers(["digits", "20", "0.05", "sgd"])
    assert "<td>a|b</td><td class=number>7.5</td><td>short</td>" in table(ROWS)
    assert "<td class=long>" in table([["what", "why"], ["a", "word " * 20]])
