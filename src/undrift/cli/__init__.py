"""The command line, one file per command. A bad request prints one sentence and exits with 2, a failed run with 1."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Sequence
from typing import Any

from undrift.core.errors import BadRequest, RunFailed, Stopped


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(command(list(sys.argv[1:] if arguments is None else arguments)))


def command(arguments: list[str]) -> int:
    """Run one command and return its exit code. Errors of the option parser are rewritten as our own sentences."""
    if threading.current_thread() is threading.main_thread():  # a scheduler's SIGTERM is treated like Ctrl-C
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.signal(signal.SIGINT, interrupt)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what an encoding lacks (Greek, in ASCII) becomes a question mark
            stream.reconfigure(errors="replace")
    try:
        from undrift.cli.app import app

        refuse_empty(arguments)
        result = app(args=arguments, standalone_mode=False, prog_name="undrift")
        return result if isinstance(result, int) else 0
    except BadRequest as error:
        return say(" ".join(str(error).splitlines()), 2)  # a name that was typed may have several lines
    except RunFailed as error:
        return say(str(error), 1)
    except (KeyboardInterrupt, Stopped) as stop:
        return say(str(stop) or "stopped", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except sqlite3.Error as error:
        return say(f"the record of the run cannot be used ({error}); free disk space, then `undrift resume` the run", 1)
    except MemoryError as error:
        return say(
            f"there is not enough memory ({str(error) or 'none is left'}); ask for less, or use a larger machine", 1
        )
    except OSError as error:
        return say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
    except Exception as error:
        kind = type(error).__name__
        if kind == "Exit":
            return int(getattr(error, "exit_code", 0))
        if kind == "Abort":  # Ctrl-C before the command began
            return say("stopped", 130)
        if hasattr(error, "format_message"):
            return say(sentence(error, arguments), 2)
        raise


def refuse_empty(arguments: Sequence[str]) -> None:
    """An empty value, which a script's unset variable leaves, would mean the working directory to an option that is a
    path."""
    for flag, value in itertools.pairwise([*arguments, "-"]):
        name, given, inside = flag.partition("=")
        if flag.startswith("--") and not (inside if given else value).strip():
            raise BadRequest(f"{name} is empty; give a value, or leave it out")


def interrupt(*_: Any) -> None:
    """Ctrl-C. While torch and numpy are imported nothing has begun, and an exception inside of them would come out as
    an error of theirs."""
    if any(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False) for name in SLOW_IMPORTS):
        with contextlib.suppress(OSError, ValueError):
            say("stopped", 130)
        os._exit(130)
    raise KeyboardInterrupt


NUMBERS = {"integer": "a whole number", "float": "a number"}  # by the parser's names of types
SLOW_IMPORTS = ("torch", "numpy", "scipy", "sklearn", "undrift")


def sentence(error: Exception, arguments: list[str]) -> str:
    """Our sentence for an error of the option parser."""
    from undrift.cli.app import commands
    from undrift.core.errors import unknown
    from undrift.core.words import clipped

    name, here = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if type(error).__name__ == "NoSuchOption" and name:
        known = [flag for option in getattr(getattr(here, "command", None), "params", ()) for flag in option.opts]
        of = f"option of `{here.command_path}`" if here is not None else "option"
        typed = name if name.startswith("--") else next((one for one in arguments if one.startswith(name)), name)
        return str(unknown(of, clipped(typed), [flag for flag in [*known, "--help"] if flag.startswith("--")]))
    option = getattr(error, "param", None)
    kind = getattr(getattr(option, "type", None), "name", "")
    if type(error).__name__ == "BadParameter" and kind in NUMBERS and option is not None:
        typed = str(getattr(error, "message", "")).rpartition(" is not ")[0]  # quoted by the parser
        return f"{option.opts[0]} must be {NUMBERS[kind]}, not {clipped(typed, 80)}"
    text = str(getattr(error, "message", "") or error)
    if text.startswith("No such command"):
        group = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None) or commands
        typed = text.split("'")[1]  # the parser's own suggestion may follow
        return str(unknown("command", typed, list(group)))
    return f"{clipped(text.rstrip('.'), 200)}; `undrift {arguments[0] if arguments else ''} --help` shows how"


def note(sentences: Sequence[str]) -> None:
    """Print sentences that the user should know on stderr, such as what is damaged. The command goes on."""
    for sentence in sentences:
        print(f"undrift: note: {sentence}", file=sys.stderr)


def say(text: str, code: int) -> int:
    """Print the sentence on stderr and return the exit code."""
    print(f"undrift: {text}", file=sys.stderr)
    return code
