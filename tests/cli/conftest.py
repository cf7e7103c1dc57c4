"""Commands run in this process, in an empty folder; what they say is taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from undrift.cli import command


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one sentence of a refusal."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("undrift: ")
        return lines[0]


@pytest.fixture
def undrift(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    # On a busy machine a timed step looks long, and a comparison of four rounds would start processes of its own.
    monkeypatch.setenv("UNDRIFT_CORES", "1")

    def run(*arguments: Any) -> Said:
        capfd.readouterr()
        code = command([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run


SMALL = ("--clients", "5", "--rounds", "2", "--model", "mlp(8)")


@pytest.fixture
def small() -> tuple[str, ...]:
    return SMALL


@pytest.fixture
def finished(undrift, small):
    """A run of two rounds in `first`."""
    said = undrift("run", *small, "--out", "first", "--json", "--quiet")
    assert said.code == 0, said.err
    return said.json
