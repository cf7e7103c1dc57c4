"""The method and the parts of a run.toml must agree: the parts are what runs, the method is the label of the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.core.errors import BadRequest

if TYPE_CHECKING:
    from undrift.experiment.setup import Setup


def method_digest(name: str, parts: Sequence[str]) -> str:
    """A hash of a method's name and its parts as text. `about` keeps it, so an edit of either is noticed. A name alone
    cannot show it: the name of a part that was given as an object or with `--weighting` has no parameters."""
    return hashlib.sha256(json.dumps([name, *parts]).encode()).hexdigest()[:16]


def check_repeated(table: Mapping[str, Any], path: Path) -> None:
    """Refuse a run.toml to repeat whose method was edited but not its parts, or the other way round."""
    about = about_of(path)
    if "parts" not in table or is_unedited(table, about):
        return
    from undrift.experiment.options import from_keywords
    from undrift.experiment.setup import build_federation, prepare

    if not same_names(table):
        raise disagreement(table, path)
    if about.get("method") is None:  # of an earlier version: the name says nothing about parameters
        return
    options = from_keywords({name: value for name, value in table.items() if name != "parts"})
    federation = build_federation(options)
    named, listed = (texts(prepare(options, federation, parts)) for parts in (None, table["parts"]))
    if named != listed:
        raise disagreement(table, path)


def check_resumed(table: Mapping[str, Any], about: Mapping[str, Any], path: Path) -> None:
    """Refuse to resume or load a run whose method or parts were edited: its states belong to the old ones."""
    if is_unedited(table, about) or ("parts" not in table and about.get("method") is None):
        return
    if about.get("method") is not None or not same_names(table):
        raise disagreement(table, path)


def is_unedited(table: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    """Whether method and parts are those that the run wrote."""
    name, parts = table.get("method", "fedavg"), table.get("parts", [])
    return about.get("method") == method_digest(str(name), parts)


def about_of(path: Path) -> dict[str, Any]:
    from undrift.experiment.run_toml import read_run

    return read_run(path).about


def same_names(table: Mapping[str, Any]) -> bool:
    """Whether the method's text names the parts that are listed, whatever their parameters."""
    from undrift.experiment.setup import written_part
    from undrift.methods.naming import method

    listed = {(built.axis, built.name) for built in map(written_part, table["parts"])}
    try:
        named = {(built.axis, built.name) for built in method(str(table.get("method", "fedavg"))).parts}
    except BadRequest:
        return False
    return named == listed


def refuse_other_base(setup: Setup, kept: str | None, made: str) -> None:
    """Refuse frozen parameters of other values: what was trained belongs to those of the run."""
    now = setup.runtime.model.frozen.digest
    if (kept or "") != now:
        where = "the file or the code" if setup.options.init is None else str(setup.options.init)
        raise BadRequest(
            f"the model's frozen parameters have SHA-256 {now[:16] or 'none'}…, those that {made} {(kept or 'none')[:16]}…; "
            f"restore {where} they come from"
        )


def texts(setup: Setup) -> list[str]:
    from undrift.experiment.run_toml import part_text

    return [part_text(part) for part in setup.method.parts]


def disagreement(table: Mapping[str, Any], path: Path) -> BadRequest:
    parts = ", ".join(table.get("parts", [])) or "missing"
    return BadRequest(
        f"{path} was edited: method is {table.get('method', 'fedavg')!r} and parts are {parts}; these must be one method, "
        "and that of the run if it is resumed; undo the edit, or repeat the run with --method"
    )
