"""Generated calls of the Python API, with values of the wrong kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import undrift as ud
from tests.fuzz.values import NAMES, STRANGE
from tests.fuzz.values import call as text_call
from undrift.core.words import shown
from undrift.experiment.options import FIELDS

SMALL = {"clients": 4, "rounds": 1, "epochs": 1, "model": "logistic", "engine": "inline", "out": False}
LONG_RUNS = ("ray", "processes", "flower")


def value(draw: random.Random) -> Any:
    """A value that may be anything but what an option needs."""
    return draw.choice((
        None, True, False, 0, -1, 3, 0.5, -0.5, float("nan"), float("inf"), 10**30, 10**5000, b"bytes", [], {}, (), [1], {"a": 1},
        [None], object(), print, int, np.float32(0.5), np.int64(3), np.zeros(3), torch.zeros(3), torch.tensor(1.0), {1, 2}, 1j,
        lambda *given: None, lambda shape, classes: 3, torch.nn.Linear(3, 2), range(3), Exception("x"), draw.choice(STRANGE),
    ))  # fmt: skip


def call(draw: random.Random) -> tuple[str, Callable[[], object]]:
    """(what is called, the call)."""
    which = draw.choice(("run", "run", "run", "run", "method", "compare", "seeds", "grid", "text"))
    if which in ("run", "compare"):
        given = {name: value(draw) for name in draw.sample(list(FIELDS), draw.randint(1, 2))}
        given = {name: bounded(name, one) for name, one in given.items()}
        if which == "run":
            return f"run({shown(given, 300)})", lambda: ud.run(**{**SMALL, **given})
        given.pop("method", None)
        small = {**{k: v for k, v in SMALL.items() if k != "out"}, **given}
        return f"compare({list(given)})", lambda: ud.compare(["fedavg"], **small)
    if which == "method":
        piece = value(draw)
        return f"method({type(piece).__name__})", lambda: ud.method(piece)
    if which == "seeds":
        one = value(draw)
        return f"compare(seeds={type(one).__name__})", lambda: ud.compare(["fedavg"], seeds=small_count(one), **study())
    if which == "grid":
        key, one = (
            draw.choice(("lr", "rounds", "nothing", "batch", "fedavg.lr", "fedavg.nothing", "fedprox.mu")),
            value(draw),
        )
        return f"compare(grid={key}: {type(one).__name__})", lambda: ud.compare(
            ["fedavg"], grid={key: one}, validation=0.2, **study()
        )
    what = draw.choice(list(NAMES))
    text = text_call(draw, what)
    return f"run({what}={text!r:.200})", lambda: ud.run(**{**SMALL, what: text})


def study() -> dict[str, Any]:
    return {name: one for name, one in SMALL.items() if name != "out"}


def bounded(name: str, one: Any) -> Any:
    """Large values of these are long runs, and these engines leave the process."""
    if name in ("rounds", "epochs", "clients") and isinstance(one, (int, np.integer)) and 0 < one < 10**6:
        return 1
    return "inline" if name == "engine" and isinstance(one, str) and one in LONG_RUNS else one


def small_count(one: Any) -> Any:
    return 1 if isinstance(one, (int, np.integer)) and 0 < one < 10**6 else one
