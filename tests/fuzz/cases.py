"""Run one generated case in this process, and judge what came out of it.

A case passes if it works, or if it is refused in one sentence that says what to do. A traceback, a second line, or more
than `LIMIT` seconds is a failure. The same seed gives the same cases.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.commands import SMALL
from undrift.cli import command
from undrift.core.errors import BadRequest, RunFailed

LIMIT = 60  # seconds
LONGEST = 700  # characters of a sentence
FIX = re.compile(  # what a sentence that says what to do has in it; a semicolon alone is none
    r"must|known|did you mean|are the brackets balanced|\b(give|use|leave|choose|write|needs?|lower|raise|ask|install|name|remove"
    r"|correct|are missing|add|start|join|shows how|lists them|at least|at most|such as|report|restore|fetch|resume|let|return"
    r"|number|numbered|save|bring|sort|writes|takes|belongs|these do|try|free|wait|is missing|goes with|makes one)\b"
)


class Hang(BaseException):
    """A case took more than LIMIT seconds."""


@dataclass(frozen=True)
class Outcome:
    """`kind` is worked, refused, failed (a run that was begun), or one of the faults: traceback, hang, sentence."""

    kind: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def fault(self) -> bool:
        return self.kind in ("traceback", "hang", "sentence")


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def quiet_place(folder: Path) -> Iterator[None]:
    """Work in a folder of its own, and put back what a command may change in this process."""
    before, path, environment = Path.cwd(), list(sys.path), dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def judged(work: Callable[[], Outcome]) -> Outcome:
    began = time.monotonic()
    try:
        with time_limit():
            found = work()
    except Hang:
        found = Outcome("hang", f"more than {LIMIT} s")
    except BaseException:
        found = Outcome("traceback", traceback.format_exc())
    return Outcome(found.kind, found.detail, time.monotonic() - began)


def command_case(arguments: list[str], folder: Path, encoding: str = "utf-8", also: Sequence[str] = ()) -> Outcome:
    """A command line: its exit code, and the one line on stderr if it is refused. `also`: what it may name instead."""
    raw = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(buffer, encoding=encoding, write_through=True) for buffer in raw]

    def work() -> Outcome:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            code = command(list(arguments))
        said = raw[1].getvalue().decode(encoding, "replace")
        if (
            "undrift: Traceback" in said and 'data.py", line' in said
        ):  # of the user's own file, for the user: a site's log
            said = said.strip().splitlines()[-1]
        if "Traceback" in said:
            return Outcome("traceback", said)
        if code == 2:
            found = refusal(said)
            return (
                found
                if found.fault
                or names_one([*own_words(arguments), *also], said, encoding)
                or any(f"'{option}'" in said for option in SMALL)  # an option that this command does not have
                else Outcome("sentence", f"names nothing: {said[:LONGEST]}")
            )
        return Outcome("worked" if code == 0 else "failed", said.strip().splitlines()[-1] if said.strip() else "")

    with quiet_place(folder):
        return judged(work)


def refusal(said: str) -> Outcome:
    """A refusal is the last line, begins with `undrift: `, is not too long, and says what to do. Notes may precede it."""
    lines = [line for line in said.strip().splitlines() if not line.startswith("note: ")]
    wrong = (
        f"{len(lines)} lines" if len(lines) != 1
        else "it does not begin with undrift" if not lines[0].startswith("undrift: ")
        else f"{len(lines[0])} characters" if len(lines[0]) > LONGEST
        else "no fix" if not FIX.search(lines[0])
        else ""
    )  # fmt: skip
    return Outcome("sentence", f"{wrong}: {said[:LONGEST]}") if wrong else Outcome("refused", lines[0])


def own_words(arguments: Sequence[str]) -> list[str]:
    """What is odd about a command line: its words without the command's name and the settings that keep runs small."""
    words = list(arguments[2 if arguments[:1] and arguments[0] in ("data", "deploy", "paper") else 1 :])
    pairs = [at for at, word in enumerate(words[:-1]) if SMALL.get(word) == words[at + 1]]
    return [word for at, word in enumerate(words) if at not in pairs and at - 1 not in pairs]


def names_one(words: Sequence[str], said: str, encoding: str) -> bool:
    """Whether a sentence names one of these words or a name in one, as a whole word, or as much as is shown of a long one.
    What the terminal's encoding lacks is a question mark."""
    said = said.removeprefix("undrift: ").replace("\\\\", "\\")
    nothing = any(not word.strip() for word in words) and re.search(r"empty|'\s*'", said)
    if nothing or "is missing" in said or "at least one" in said:  # there is no word to name
        return True
    for word in words:
        for piece in {word, word[:12], os.path.expanduser(word), *re.findall(r"[\w.-]+", word)}:
            forms = {piece, piece.encode("unicode_escape").decode(), piece.encode(encoding, "replace").decode(encoding)}
            ends = "" if piece == word[:12] else r"(?!\w)"
            if any(re.search(rf"(?<!\w){re.escape(form)}{ends}", said) for form in forms if form.strip()):
                return True
    return not any(word.strip() for word in words)


def call_case(call: Callable[[], object], folder: Path) -> Outcome:
    """A call of the Python API: it returns, or raises our own errors with one sentence."""

    def work() -> Outcome:
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                call()
        except BadRequest as error:
            return refusal(f"undrift: {error}")
        except RunFailed as error:
            return Outcome("failed", str(error))
        return Outcome("worked")

    with quiet_place(folder):
        return judged(work)
