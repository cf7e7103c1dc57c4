"""Several methods on the same federation, the same cohorts and the same start."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undrift.errors import BadRequest, RunFailed
from undrift.options import from_keywords
from undrift.setup import composition, prepare


def split(argument: str) -> tuple[str, list[str]]:
    """`"apfl --optimizer sgd --lr 0.1"` -> ("apfl", its own options)."""
    words = shlex.split(argument)
    if not words:
        raise BadRequest("an empty method; name at least one, such as fedavg")
    return words[0], words[1:]


def compare(
    methods: Sequence[tuple[str, dict[str, Any]]],
    options: dict[str, Any],
    seeds: Sequence[tuple[int, int]],
    folder: Path,
    start: Callable[..., Any],
) -> list[dict[str, Any]]:
    """One run per (method, seed); a run that fails is marked and the others finish. `seeds`: (seed, data seed)."""
    rows = []
    for seed, data_seed in seeds:
        for number, (name, own) in enumerate(methods):
            place = folder / f"{number:02d}-{safe(name)}-seed{seed}"
            settings = {**options, **own, "seed": seed, "data_seed": data_seed, "out": str(place)}
            try:
                row = dict(start(name, settings).summary)
            except RunFailed as error:
                row = {"method": name, "failed": str(error).splitlines()[0]}
            label = " ".join([name, *(f"{k}={v}" for k, v in own.items())])
            rows.append({**row, "method": label, "seed": seed})
    return rows


def ready(
    methods: Sequence[tuple[str, dict[str, Any]]], options: dict[str, Any], seeds: tuple[int, int]
) -> dict[str, Any]:
    """The options of a comparison, after every method was set up once: what would be refused is found before the first
    hour is spent. A proxy set is carved for all when one method asks for it."""
    asked = [from_keywords({**options, **own, "method": name}) for name, own in methods]
    needs = {need for one in asked for part in composition(one, None).parts for need in part.needs}
    if "proxy" in needs and not any(one.proxy for one in asked):
        options = {**options, "proxy": PROXY}
    shared = None
    for name, own in methods:
        settings = {"seed": seeds[0], "data_seed": seeds[1], **options, **own, "method": name}
        setup = prepare(from_keywords(settings), None if DEALT & set(own) else shared)
        shared = shared if DEALT & set(own) else setup.federation
    return options


PROXY = 0.02
DEALT = {"data", "partition", "clients", "noise", "domains", "validation", "proxy", "data_seed", "seed"}


def safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "+@.-" else "_" for c in name)[:50]


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """One line per method: mean ± std over seeds, best first."""
    from undrift.study.tables import percent

    head = ["method", "G", "L1 Acc(L)", "L1 Acc(G)", "L2 Acc(L)", "L2 Acc(G)", "worst 10 %", "s"]
    lines = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == name and "failed" not in row]
        if not mine:
            lines.append((-2.0, [name, "failed", *[""] * (len(head) - 2)]))
            continue

        def over(path: Sequence[str], mine: Sequence[dict[str, Any]] = mine) -> list[float]:
            values = []
            for row in mine:
                value: Any = row
                for key in path:
                    value = None if value is None else value.get(key)
                if value is not None:
                    values.append(value)
            return values

        def cell(values: list[float]) -> str:
            if not values:
                return "—"
            spread = f" ± {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
            return percent(float(np.mean(values))) + spread

        best = over(("accuracy",))
        lines.append((
            float(np.mean(best)) if best else -1.0,
            [name, cell(best),
             *(cell(over(("stages", s, d, "mean"))) for s in ("L1", "L2") for d in ("acc_local", "acc_global")),
             cell(over(("stages", "L1", "acc_local", "worst_decile"))),
             f"{np.mean([row['seconds'] for row in mine]):.1f}"],
        ))  # fmt: skip
    return [head, *[line for _, line in sorted(lines, key=lambda item: -item[0])]]
