"""The helpers that write to disk: what they leave, and what they refuse."""

from __future__ import annotations

import os

import pytest

from undrift.core.errors import BadRequest
from undrift.experiment.folders import next_free
from undrift.store.durable import append_line, make_folder, write_file


def test_a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it(tmp_path):
    write_file(tmp_path / "run.toml", b"before, and longer")
    write_file(tmp_path / "run.toml", b"after")
    assert (tmp_path / "run.toml").read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["run.toml"]


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_line(path, '{"a": 1}')
    append_line(path, '{"b": 2}')
    path.write_text(path.read_text() + '{"c": ')
    append_line(path, '{"d": 4}')
    assert path.read_text().splitlines() == ['{"a": 1}', '{"b": 2}', '{"c": ', '{"d": 4}']


def test_a_folder_is_made_with_its_parents(tmp_path):
    make_folder(tmp_path / "a" / "b" / "c", mode=0o700)
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a", exist_ok=False)


def test_a_file_in_the_place_of_a_parent_is_refused(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(BadRequest, match="cannot be written"):
        next_free(tmp_path / "runs", "digits-fedavg")
