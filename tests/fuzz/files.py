"""Files with one change: of a run, a comparison, results, a deployment, a site, a user's data."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.torch
import tomli_w
import torch

import undrift as ud
from tests.fuzz.cases import Outcome, call_case, command_case
from tests.fuzz.values import LONG
from undrift.core.files import read_toml
from undrift.papers import papers, scales
from undrift.papers import run as paper_run

SMALL = {"clients": 4, "rounds": 1, "epochs": 1, "model": "logistic", "engine": "inline"}
LITERALS = ("3", "0", "-1", "0.5", "true", "nan", "inf", "-inf", '""', '"x"', '"²"', "[]", "[[1]]", '["a", 1]', "{}", "{a = 1}", LONG,
            "1e400", '"\\u0000"', '":"', '"json:dumps"', '"object:x"', "[" * 1000 + "]" * 1000, "10000000000000000000000", "")  # fmt: skip
JSON = ("3", "0", "-1", "0.5", "true", "null", "NaN", "Infinity", '""', '"x"', "[]", "[[1]]", "{}", '{"a": 1}', LONG, "1e400",
        "[" * 1000 + "]" * 1000, "")  # fmt: skip


class Material:
    """One of each kind of folder, made once. A case works on a copy."""

    def __init__(self, home: Path) -> None:
        self.home = home
        ud.run("scaffold", out=home / "run", **SMALL)
        ud.compare(["fedavg", "fedprox"], out=home / "compare", **SMALL)
        scaled = scales.scaled(papers.load("flood/table5"), "quick")
        paper_run.preset_folder(scaled, home / "paper", resume=False)
        self.results(home / "results.jsonl")
        self.deployment(home / "deployment")
        self.site(home / "site")
        x, y = np.random.default_rng(0).random((60, 6), dtype=np.float32), np.arange(60) % 3
        np.savez(home / "own.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])

    def results(self, path: Path) -> None:
        table = papers.load("flood/table5")
        line = {
            "preset": table.name, "scale": "quick", "row": table.rows[0].name, "column": table.columns[0].name, "seed": 0,
            "method": "fedavg", "rounds": 3, "seconds": 1.0, "accuracy": 0.5, "values": {table.values[0].name: [0.5, 0.1]},
            "curve": [0.1, 0.2, 0.5], "reductions": ["rounds 3 instead of 100"], "undrift": "0", "torch": "2", "machine": "m",
            "date": "2026-01-01",
        }  # fmt: skip
        path.write_text("".join(json.dumps({**line, "seed": seed}) + "\n" for seed in range(2)))

    def deployment(self, folder: Path) -> None:
        """A server's folder: a simulation's record, with the tables of a deployment."""
        shutil.copytree(self.home / "run", folder)
        table = read_toml(folder / "run.toml")
        deploy = {"sites": ["a", "b"], "labels": [str(c) for c in range(10)], "shape": [1, 8, 8]}
        (folder / "run.toml").write_text(tomli_w.dumps({**table, "clients": 2, "deploy": deploy}))
        (folder / "roll.json").write_text(
            json.dumps({"run": "abc", "sessions": 1, "sizes": {"a": 3, "b": 4}}, indent=1)
        )
        policy = {
            "methods": ["scaffold"],
            "metrics": ["accuracy"],
            "works": ["train"],
            "max_rounds": 9,
            "size": "rounded",
        }
        (folder / "policy.toml").write_text(tomli_w.dumps(policy))
        (folder / "data.py").write_text(
            "import numpy as np\nLABELS = [str(c) for c in range(10)]\n\n\n"
            "def load():\n    draw = np.random.default_rng(0)\n"
            "    return draw.random((40, 1, 8, 8), dtype=np.float32), np.arange(40) % 10\n"
        )

    def site(self, folder: Path) -> None:
        folder.mkdir()
        module = ud.load(self.home / "run").model
        for name in ("model", "personal"):
            state = {key: value.clone() for key, value in module.state_dict().items()}
            safetensors.torch.save_file(state, folder / f"{name}.safetensors")
        table = {
            "site": "a", "model": "logistic", "method": "fedavg", "round": 1, "seed": 0, "shape": [1, 8, 8],
            "labels": [str(c) for c in range(10)], "private": [], "personal": [{"file": "personal.safetensors", "weight": 1.0}],
        }  # fmt: skip
        (folder / "site.toml").write_text(tomli_w.dumps(table))


def file_case(draw: random.Random, material: Material, place: Path) -> tuple[str, Outcome]:
    """(what was done, what came out) of one changed file."""
    kind = draw.choice(("run", "run", "run", "compare", "compare", "paper", "results", "deployment", "site", "own"))
    source = material.home / {"results": "results.jsonl", "own": "own.npz"}.get(kind, kind)
    target = place / source.name
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    name, commands = COMMANDS[kind](draw)
    path = target / name if name else target
    before = path.read_bytes()
    path.write_bytes(changed(draw, before, json_like=path.suffix in (".json", ".jsonl"), binary=path.suffix == ".npz"))
    if kind == "paper" and same_table(path, before):
        return "paper unchanged", Outcome("worked")
    what = f"{kind}/{name}: {difference(before, path.read_bytes())}"
    if kind == "site":
        return what, call_case(lambda: (ud.load("site").model, ud.load("site").personal()), place)
    words = draw.choice(commands)
    line = changed_line(before, path.read_bytes())
    return f"{words} with {what}", command_case(list(words), place, also=[line.decode(errors="replace")])


COMMANDS: dict[str, Callable[[random.Random], tuple[str, list[tuple[str, ...]]]]] = {
    "run": lambda draw: ("run.toml", [
        ("run", "run/run.toml", "--out", "again"), ("show", "run"), ("show", "run", "--json"), ("resume", "run"), ("runs", "."),
        ("report", "run"), ("export", "run"), ("resume", "run", "--rounds", "2"), ("show", "run", "--traces"),
    ]),
    "compare": lambda draw: (draw.choice(("compare.toml", "rows.jsonl")), [
        ("compare", "--resume", "compare"), ("report", "compare"), ("compare", "--resume", "compare", "--seeds", "2"),
        ("show", "compare"), ("demo", "--out", "compare", "--rounds", "0"),
    ]),
    "paper": lambda draw: ("paper.toml", [("paper", "run", "flood/table5", "--out", "paper", "--resume"), ("show", "paper")]),
    "results": lambda draw: ("", [("paper", "results", "results.jsonl"), ("paper", "results", "results.jsonl", "--html", "p.html")]),
    "deployment": lambda draw: (draw.choice(("run.toml", "roll.json", "data.py", "policy.toml")), [
        ("deploy", "status", "deployment"), ("deploy", "check", "deployment"), ("show", "deployment", "--json"),
        ("deploy", "check", "deployment", "--site", "a", "--data", "deployment/data.py"),
    ]),
    "site": lambda draw: ("site.toml", []),
    "own": lambda draw: ("", [
        ("data", "show", "own.npz", "iid", "--clients", "3", "--json"),
        ("run", "--data", "own.npz", "--partition", "iid", "--clients", "3", "--rounds", "1", "--model", "logistic", "--quiet"),
    ]),
}  # fmt: skip


def changed(draw: random.Random, data: bytes, json_like: bool, binary: bool) -> bytes:
    """One change: of a value, of a line, or of bytes."""
    way = "bytes" if binary else draw.choice(("value", "value", "value", "value", "line", "bytes"))
    if way == "bytes":
        return changed_bytes(draw, data)
    text = data.decode()
    if way == "line":
        lines = text.splitlines(keepends=True)
        at = draw.randrange(len(lines))
        lines[at : at + 1] = draw.choice(([], [lines[at]] * 2, [lines[at][: len(lines[at]) // 2] + "\n"], ["x = 1\n"]))
        return "".join(lines).encode()
    pattern = r'(?<=: )("[^"]*"|[^,{}\[\]]+)' if json_like else r"(?m)(?<= = ).+$"
    spots = list(re.finditer(pattern, text))
    if not spots:
        return changed_bytes(draw, data)
    spot = draw.choice(spots)
    return (text[: spot.start()] + draw.choice(JSON if json_like else LITERALS) + text[spot.end() :]).encode()


def changed_bytes(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(max(1, len(data)))
    way = draw.randrange(4)
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    if way == 2:
        return data[:at] + draw.randbytes(4) + data[at:]
    return b"" if draw.random() < 0.2 else data[:at] + data[at + draw.randrange(1, 30) :]


def same_table(path: Path, before: bytes) -> bool:
    """Whether a paper.toml still says the same: then the runs would start, which is no test."""
    import tomllib

    try:
        return tomllib.loads(path.read_text()) == tomllib.loads(before.decode())
    except (ValueError, RecursionError):
        return False


def changed_line(before: bytes, after: bytes) -> bytes:
    """The first line that is another one."""
    return next((b for a, b in zip(before.splitlines(), after.splitlines()) if a != b), b"")


def difference(before: bytes, after: bytes) -> str:
    at = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
    line = before.rfind(b"\n", 0, at) + 1
    return f"{before[line : at + 30]!r} -> {after[line : at + 30]!r}"


torch.set_num_threads(1)
