"""The two ways in which Undrift says no, and the sentence for a name it does not know.

A user never sees a traceback for something a user did: the command line prints the sentence of a `BadRequest`
and ends with exit code 2, that of a `RunFailed` with exit code 1. Everything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path

from undrift.core.words import clipped


class BadRequest(ValueError):
    """The request cannot be met as asked: one sentence with the cause and the fix."""


class NoData(BadRequest):
    """The data of a run cannot be had here."""


class RunFailed(RuntimeError):
    """The request was fine, the run broke: one sentence, and the run stays resumable."""


class Stopped(RuntimeError):
    """Ctrl-C, with the sentence that says how to go on (the option parser would swallow a KeyboardInterrupt's)."""


# What refusals of labels say, wherever labels enter.
LABELS = (
    "labels are one class per sample, as a whole number or a name; for other targets give a task: regression, multilabel, "
    "segmentation, sequence"
)


def raised(error: BaseException) -> str:
    """What a user's code raised, and where: `KeyError: 'x' (line 3 of mine.py)`."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else text


def unknown(what: str, name: str, known: Iterable[str]) -> BadRequest:
    """The error for an unknown name, with the nearest known ones.

    >>> unknown("method", "fedagv", ["fedavg", "fedprox"]).args[0]
    "unknown method 'fedagv'; did you mean fedavg?"
    """
    names = sorted(known)
    name = clipped(name)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else clipped(f"known: {', '.join(names)}", 500)
    return BadRequest(f"unknown {what} {name!r}; {hint}")
