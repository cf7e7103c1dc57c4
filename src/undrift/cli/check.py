"""`undrift check`: does a part of your own keep the contract?"""

from __future__ import annotations

import traceback

import typer

from undrift.core.errors import BadRequest, RunFailed, raised


def add(app: typer.Typer) -> None:
    app.command("check")(check)


def check(name: str = typer.Argument(..., help="package:name of your own method, or the name of any method")) -> None:
    """Run the tests that every shipped part passes on a method's parts, alone and beside other methods."""
    from undrift.contract.compose import PREFERRED
    from undrift.methods.naming import method_pieces
    from undrift.testing import Broken
    from undrift.testing import check as check_part

    parts = [piece.part for piece in method_pieces(name) if piece.rank > PREFERRED]
    for part in parts:
        try:
            check_part(part)
        except Broken as law:
            raise RunFailed(f"{part.key} breaks the contract: {law}") from law
        except (BadRequest, RunFailed, KeyboardInterrupt):
            raise
        except Exception as error:  # of the part's own code: its author needs the traceback
            traceback.print_exception(error)
            raise RunFailed(f"{part.key} breaks the contract: it raised {raised(error)}") from error
    typer.echo(f"{name} keeps the contract: {', '.join(part.key for part in parts) or 'it has no part of its own'}")
