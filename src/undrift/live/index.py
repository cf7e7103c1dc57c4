"""The runs and studies in the watched folders. `poll` looks again; a page is made anew if something changed."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.live.locks import holders
from undrift.live.records import RunRow, read_run

DEEPEST = 6  # folders inside folders
STUDY_FILES = ("compare.toml", "paper.toml", "advise.toml")
RESULT_FILES = ("advise.json", "rows.jsonl")  # what a study knows so far
STAMPED = ("run.toml", "run.sqlite", "run.sqlite-wal", "metrics.jsonl")  # a file that changes when a run does
Stamp = tuple[Any, ...]


@dataclass(frozen=True)
class Found:
    """A folder with something to show."""

    key: str  # its address on the page: the path below the watched folder
    path: Path
    study: bool  # a comparison, a race or a preset's runs; otherwise a run


@dataclass(frozen=True)
class Study:
    """A folder of a comparison, of a race or of a preset, with its runs."""

    key: str
    path: Path
    runs: tuple[RunRow, ...]
    running: bool
    stamp: Stamp

    @property
    def paper(self) -> bool:
        return (self.path / "paper.toml").exists()

    @property
    def race(self) -> bool:
        return (self.path / "advise.toml").exists()

    @property
    def answered(self) -> bool:
        """Whether a race has run its fresh seeds."""
        try:
            return json.loads((self.path / "advise.json").read_text())["difference"] is not None
        except (OSError, ValueError, KeyError, TypeError):
            return False


class Index:
    """Everything that can be asked for is in `runs` and `studies`, by key. A path never comes from outside."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = named_roots(roots)
        self.runs: dict[str, RunRow] = {}
        self.studies: dict[str, Study] = {}
        self.version = 0
        self.stamps: dict[str, Stamp] = {}
        self.numbers: dict[str, int] = {}  # of the methods, in the order in which they were first seen: their colours
        self.curves: dict[tuple[str, str], tuple[Stamp, tuple[list[float], list[float]]]] = {}  # by run and axis
        self.lock = threading.Lock()

    def poll(self) -> bool:
        """Look at the folders. Whether anything changed."""
        with self.lock:
            held = holders()
            found = sorted(self.folders(), key=lambda one: one.key)
            runs, stamps = dict[str, RunRow](), dict[str, Stamp]()
            for one in found:
                if one.study:
                    continue
                running = held(one.path / "lock")
                stamps[one.key] = stamp = (running, *(stamp_of(one.path / name) for name in STAMPED))
                known = self.runs.get(one.key)
                same = known is not None and self.stamps.get(one.key) == stamp
                runs[one.key] = known if same and known is not None else read_run(one.key, one.path, running)
            studies = {one.key: self.study(one, runs, held(one.path / "lock")) for one in found if one.study}
            different = runs != self.runs or studies != self.studies or stamps != self.stamps
            self.runs, self.studies, self.stamps = runs, studies, stamps
            for row in runs.values():
                if row.method not in self.numbers:
                    self.numbers[row.method] = len(self.numbers)
            self.curves = {place: kept for place, kept in self.curves.items() if place[0] in runs}
            self.version += different
            return different

    def study(self, one: Found, runs: dict[str, RunRow], running: bool) -> Study:
        inside = tuple(row for key, row in runs.items() if key.startswith(f"{one.key}/") and ".old" not in key)
        stamp = tuple(stamp_of(one.path / name) for name in (*STUDY_FILES, *RESULT_FILES))
        return Study(one.key, one.path, inside, running, stamp)

    def stamp(self, key: str) -> Any:
        """Another value whenever something in this run or study changed."""
        if key in self.studies:
            study = self.studies[key]
            return study.stamp, study.running, tuple(self.stamps[row.key] for row in study.runs)
        return self.stamps.get(key)

    def changed(self, key: str) -> int:
        """When the record of a run was written last, in nanoseconds."""
        return max((stamp[0] for stamp in self.stamps[key][1:] if stamp is not None), default=0)

    def colours(self, runs: Mapping[str, Sequence[RunRow]]) -> dict[str, int]:
        """The number of each label of a study: that of its method, so that it has the same colour on every page. Labels that
        share a method have numbers of their own."""
        methods = {label: {row.method for row in rows} for label, rows in runs.items()}
        counted = Counter(method for names in methods.values() for method in names)
        own = {label: next(iter(names)) for label, names in methods.items() if len(names) == 1}
        return {
            label: self.number(own[label] if label in own and counted[own[label]] == 1 else label) for label in runs
        }

    def number(self, method: str) -> int:
        return self.numbers.setdefault(method, len(self.numbers))

    def folders(self) -> Iterator[Found]:
        for name, root in self.roots.items():  # a plain folder may become a comparison while it is watched
            yield from walk(name or (root.resolve().name if is_one(root) else ""), root, 0)


def walk(key: str, path: Path, depth: int) -> Iterator[Found]:
    """The runs and studies in a folder. Links are not followed; what is inside a run belongs to it."""
    try:
        with os.scandir(path) as entries:
            listed = [(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries]
    except OSError:  # it vanished, or may not be read
        return
    names = {name for name, _, _ in listed}
    if {"run.toml", "run.sqlite"} & names:
        yield Found(key, path, False)
        return
    links = {name for name, _, is_link in listed if is_link}
    if set(STUDY_FILES) & names and not links & {*STUDY_FILES, *RESULT_FILES}:
        yield Found(key, path, True)
    if depth < DEEPEST:
        for name, is_folder, _ in listed:
            if is_folder and not name.startswith("."):
                yield from walk(f"{key}/{name}" if key else name, path / name, depth + 1)


def named_roots(roots: Sequence[Path]) -> dict[str, Path]:
    """The watched folders by the first part of their keys. A single plain folder needs none."""
    if len(roots) == 1 and not is_one(roots[0]):
        return {"": roots[0]}
    named: dict[str, Path] = {}
    for root in roots:
        name, number = root.resolve().name or "runs", 1
        while name in named:
            number += 1
            name = f"{root.resolve().name}-{number}"
        named[name] = root
    return named


def is_one(root: Path) -> bool:
    """Whether a folder is a run or a study itself."""
    return any((root / name).exists() for name in ("run.toml", "run.sqlite", *STUDY_FILES))


def stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
