"""The command line, one file per command. A bad request prints one sentence and exits with 2, a failed run with 1."""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
from collections.abc import Sequence

from undrift.core.errors import BadRequest, RunFailed, Stopped


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(command(list(sys.argv[1:] if arguments is None else arguments)))


def command(arguments: list[str]) -> int:
    """Run one command and return its exit code. Errors of the option parser are rewritten as our own sentences."""
    from undrift.cli.app import app, known_options

    if threading.current_thread() is threading.main_thread():  # a scheduler's SIGTERM is treated like Ctrl-C
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        result = app(args=arguments, standalone_mode=False, prog_name="undrift")
        return result if isinstance(result, int) else 0
    except BadRequest as error:
        return say(str(error), 2)
    except RunFailed as error:
        return say(str(error), 1)
    except (KeyboardInterrupt, Stopped) as stop:
        return say(str(stop) or "stopped", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except sqlite3.Error as error:
        return say(f"the record of the run cannot be used ({error}); free disk space, then `undrift resume` the run", 1)
    except OSError as error:
        return say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1)
    except Exception as error:
        kind = type(error).__name__
        if kind in ("Exit", "Abort"):
            return int(getattr(error, "exit_code", 130))
        if hasattr(error, "format_message"):
            return say(sentence(error, arguments, known_options), 2)
        raise


def sentence(error: Exception, arguments: list[str], known_options: Sequence[str]) -> str:
    """Our sentence for an error of the option parser."""
    from undrift.cli.app import commands
    from undrift.core.errors import unknown

    name = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and name:
        return str(unknown("option", str(name), known_options))
    text = str(getattr(error, "message", "") or error)
    if text.startswith("No such command"):
        group = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None) or commands
        typed = text.split("'")[1]  # the parser's own suggestion may follow
        return str(unknown("command", typed, list(group)))
    return f"{text.rstrip('.')}; `undrift {arguments[0] if arguments else ''} --help` shows how"


def note(sentences: Sequence[str]) -> None:
    """Print sentences that the user should know on stderr, such as what is damaged. The command goes on."""
    for sentence in sentences:
        print(f"undrift: note: {sentence}", file=sys.stderr)


def say(text: str, code: int) -> int:
    """Print the sentence on stderr and return the exit code."""
    print(f"undrift: {text}", file=sys.stderr)
    return code
