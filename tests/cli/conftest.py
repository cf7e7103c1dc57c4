"""Commands run in this process, in an empty folder; their exit code and output are returned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from undrift.cli import command


@dataclass
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one sentence that a refused command prints."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("undrift: ")
        return lines[0]


@pytest.fixture
def undrift(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    # On a busy machine a timed step looks long, and a comparison of four rounds would start processes.
    monkeypatch.setenv("UNDRIFT_CORES", "1")

    def run(*arguments: Any) -> Result:
        capfd.readouterr()
        code = command([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return run


SMALL = ("--clients", "5", "--rounds", "2", "--model", "mlp(8)")


@pytest.fixture
def small() -> tuple[str, ...]:
    return SMALL


@pytest.fixture
def finished(undrift, small):
    """A run of two rounds in `first`."""
    result = undrift("run", *small, "--out", "first", "--json", "--quiet")
    assert result.code == 0, result.err
    return result.json
