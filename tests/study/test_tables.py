"""Tables for a terminal and as Markdown."""

from __future__ import annotations

from undrift.study.tables import markdown_table, text_table

ROWS = [["method", "G", "why"], ["a|b", "7.5", "short"], ["longer", "12.25", "x"]]


def test_words_stand_left_and_numbers_right():
    assert text_table(ROWS, words=(0, 2)).splitlines() == [
        "method      G  why", "──────  ─────  ─────", "a|b       7.5  short", "longer  12.25  x",
    ]  # fmt: skip


def test_as_markdown_too_and_a_bar_in_a_cell_does_not_open_another():
    assert markdown_table(ROWS, words=(0, 2)).splitlines() == [
        "| method | G | why |", "| --- | ---: | --- |", "| a\\|b | 7.5 | short |", "| longer | 12.25 | x |",
    ]  # fmt: skip
