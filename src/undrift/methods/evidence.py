"""The evidence for a method: the tests that state its laws, and the results of its controls where they were measured.

Which tests belong to a part is written by hand, and a test checks that the files exist and mention the part. Findings are
rendered from the result files of docs/results into `findings.json`, which the wheel has. A finding is one sentence with its
interval, its seeds and its setting: another federation may give another result. A method without a finding has not been
measured, and `undrift methods` says so.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files

TASKS_FILE = "tasks.json"  # written by `python -m undrift.testing.task_table`
PLAIN = ("weighting.size", "combine.mean", "server.replace")  # the parts of FedAvg

# Files of tests/laws that are not named after their part.
SHARED = {
    "test_private": ("personalize.fedrep", "private.head", "private.named", "private.norms"),
    "test_lora": (
        "combine.flexlora", "combine.flora", "private.fedsalora", "private.ffalora", "server.hetlora", "weighting.loranorm",
    ),
    "test_compression": ("upload.quantize", "upload.topk"),
    "test_server_side": ("combine.fednova", "server.fedmr", "server.momentum", *PLAIN),
    "test_adaptive": ("server.fedadagrad", "server.fedadam", "server.fedyogi"),
    "test_dac": ("weighting.flood",),
    "test_fednolowe": ("weighting.uniform",),
}  # fmt: skip


def laws(part: str) -> str:
    """The file of tests/laws for a part called axis.name."""
    shared = [file for file, parts in SHARED.items() if part in parts]
    return shared[0] if shared else f"test_{part.partition('.')[2]}"


@dataclass(frozen=True)
class Finding:
    """A result, and the setting in which it was measured."""

    sentence: str
    where: str


def findings(method: str) -> tuple[Finding, ...]:
    """What the results say about a method; empty if it was not measured."""
    return tuple(Finding(**finding) for finding in shipped().get(method, ()))


@functools.cache
def tasks() -> dict[str, dict[str, str]]:
    """By published name and task: "yes" (or "yes, as …") if a run of it improved the headline of a tiny problem, else the
    sentence that refused it."""
    return dict(json.loads((files("undrift.methods") / TASKS_FILE).read_text()))


@functools.cache
def shipped() -> dict[str, list[dict[str, str]]]:
    """All findings, as `docs/results/run tables` rendered them from the result files."""
    return dict(json.loads((files("undrift.methods") / "findings.json").read_text()))
