"""Fixtures of the laws: small federations, and contexts for hooks that are tested in isolation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from undrift import testing
from undrift.contract.context import Batch, Plan, Replies
from undrift.core.errors import BadRequest
from undrift.core.streams import torch_stream
from undrift.experiment import setup
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.methods.naming import method


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every law holds one by one and in lock-step."""
    modes = ["one-by-one", pytest.param("lockstep", marks=pytest.mark.slow)]
    metafunc.parametrize("mode", modes, indirect=True)


@pytest.fixture(autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lock-step a law is left out where one of its runs cannot train so: with a loss of its own, for instance."""
    if request.param == "one-by-one":
        return
    monkeypatch.setitem(testing.QUICK, "lockstep", "auto")
    before = setup.decided

    def decided(given: str, *about: Any) -> tuple[int, str]:
        if given != "auto":
            return before(given, *about)
        try:
            return before("on", *about)
        except BadRequest as error:
            pytest.skip(str(error))

    monkeypatch.setattr(setup, "decided", decided)


@pytest.fixture(scope="session")
def tiny() -> testing.Toy:
    """Four clients of 24, 29, 34 and 39 samples, three classes, skewed."""
    return testing.tiny()


@pytest.fixture(scope="session")
def planned(tiny: testing.Toy) -> Callable[..., Plan]:
    """A plan with some of its fields set, as `resolve`, `check` and the hooks receive it."""

    def make(what: Any = "fedavg", **fields: Any) -> Plan:
        options = from_keywords({**testing.QUICK, "model": tiny.model, "method": method(what)})
        return replace(prepare(options, tiny).plan, **fields)

    return make


@pytest.fixture
def job(planned: Callable[..., Plan]) -> Callable[..., Any]:
    """A client's context made by hand. Its notes are in `notes`."""

    def make(**facts: Any) -> Any:
        plan = facts.pop("plan", None) or planned()
        notes: dict[str, Any] = {}
        given = {
            "plan": plan, "round": 0, "client": 0, "n": 8, "lr": 0.1, "notes": notes, "note": notes.__setitem__,
            "stream": lambda purpose: torch_stream(0, purpose, 0),
            "lasting": lambda purpose: torch_stream(0, purpose, -1),
        }  # fmt: skip
        return SimpleNamespace(**{**given, **facts})

    return make


@pytest.fixture
def server(planned: Callable[..., Plan]) -> Callable[..., Any]:
    """A server's context made by hand. `notes` has (name, value, client)."""

    def make(**facts: Any) -> Any:
        plan = facts.pop("plan", None) or planned()
        notes: list[tuple[str, Any, int | None]] = []
        given = {
            "plan": plan, "round": 0, "memory": None, "shelf": {}, "notes": notes,
            "note": lambda name, value, client=None: notes.append((name, value, client)),
            "stream": lambda purpose: torch_stream(0, purpose, 0),
        }  # fmt: skip
        return SimpleNamespace(**{**given, **facts})

    return make


@pytest.fixture
def replies() -> Callable[..., Replies]:
    """Replies made by hand: m clients of one sample each, with the given fields."""

    def make(m: int, **facts: Any) -> Replies:
        zeros = [torch.zeros(1)] * m
        given = {
            "ids": list(range(m)), "n": [1] * m, "vectors": zeros, "sent": zeros, "steps": [1] * m, "effective_steps": [1.0] * m,
            "loss": [1.0] * m, "last": [1.0] * m, "client_messages": [{} for _ in range(m)],
        }  # fmt: skip
        return Replies(**{**given, **facts})

    return make


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """A batch whose logits are given."""

    def make(logits: torch.Tensor, y: torch.Tensor | None = None, **facts: Any) -> Batch:
        y = torch.zeros(len(logits), dtype=torch.long) if y is None else y
        made = Batch(torch.zeros(len(logits), 1), y, torch.arange(len(logits)), torch.zeros(1), 0, **facts)
        made.logits = logits
        return made

    return make
