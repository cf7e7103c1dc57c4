"""run.toml as the run wrote it. The record keeps its text, so a file that was changed later is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from undrift.core.errors import BadRequest
from undrift.core.files import parse_toml, read_text
from undrift.experiment.run_toml import checked_run
from undrift.store.checksums import crc
from undrift.store.record import kept_texts

EVERY_RUN_HAS = ("method", "data", "rounds", "clients", "thresholds")
MISSING = object()


@dataclass(frozen=True)
class RunFile:
    """The content of a run.toml: the options, and the tables beside them."""

    options: dict[str, Any]
    about: dict[str, Any]
    deploy: dict[str, Any] | None
    changed: str | None  # a sentence, if the file is not as the run wrote it

    @property
    def damage(self) -> list[str]:
        return [] if self.changed is None else [f"{self.changed}; what the record kept of it is used"]


def run_file(folder: Path) -> RunFile:
    """The run.toml of a run. If the file was changed, the text in the record counts."""
    path = folder / "run.toml"
    texts, written_crc = kept_texts(folder, path.name)
    if written_crc not in (None, crc([(path.name, text) for text in texts])):  # the copy is damaged
        text = path.read_bytes().decode(errors="replace")
        if text not in texts and crc([(path.name, text)]) != written_crc:
            raise BadRequest(f"{path} and its copy in run.sqlite are damaged; restore the folder from a backup")
        texts = []
    text, changed = as_written(path, texts)
    written = checked_run(parse_toml(text, path), path)
    if missing := [name for name in EVERY_RUN_HAS if name not in written.options]:
        raise BadRequest(f"{path} has no key {missing[0]}, so it is not what a run wrote; restore it from a backup")
    return RunFile(written.options, written.about, written.deploy, changed)


def as_written(path: Path, texts: list[str]) -> tuple[str, str | None]:
    """(the text that counts, a sentence if the file has another content). Old records keep no text: the file counts."""
    if not texts:
        return read_text(path), None
    try:
        text = read_text(path)
        if text in texts:
            return text, None
        now = parse_toml(text, path)
    except BadRequest as error:
        return texts[-1], f"{error}: it is not what the run wrote"
    changes = differences(parse_toml(texts[-1], path), now)
    if not changes:  # comments, white space
        return text, None
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return texts[-1], f"{path} was changed since the run wrote it: {', '.join(changes[:3])}{more}"


def differences(before: Mapping[str, Any], now: Mapping[str, Any], inside: str = "") -> list[str]:
    """The keys whose values differ, each with both values."""
    found = []
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key, MISSING), now.get(key, MISSING)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{inside}{key}.")
        elif repr(old) != repr(new):  # 1 is not 1.0 here: a cohort of one client, or of all
            found.append(f"{inside}{key} is {short(new)} and was {short(old)}")
    return found


def short(value: Any) -> str:
    text = "missing" if value is MISSING else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def refuse_changed(folder: Path, changed: str) -> NoReturn:
    """Refuse to resume a run whose run.toml was changed: its rounds so far belong to the old one."""
    raise BadRequest(
        f"{changed}; undo it (`undrift export {folder}` writes what the run wrote to export/run.toml), or start another "
        f"run with `undrift run {folder}/run.toml`"
    )
