"""How good `undrift advise` is: its answers beside an exhaustive search, on fourteen federations.

    python benchmarks/advisor.py exhaustive [--results docs/results/advisor.jsonl]

`exhaustive` runs fifteen methods at three rates and three seeds on every federation, then the best of each on three fresh
seeds. It appends a line per run, skips what is there, and can be stopped at any time. Seeds are the outermost loop and
federations the innermost one, so that an early stop leaves all of them covered alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from advisor_federations import FACTORS, FEDERATIONS, FRESH, METHODS, SEEDS, methods_of, options_of, rates_of

import undrift as ud
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.headline import Headline
from undrift.experiment.result import Result
from undrift.papers.run import machine
from undrift.study.tasks import Federations

Line = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "advisor.jsonl"
CURVE = "SELECT value FROM metrics WHERE stage='G' AND data='validation' AND metric=? ORDER BY round"


def key_of(line: Line) -> tuple[Any, ...]:
    return line["federation"], line["method"], line["lr"], line["seed"]


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wanted() -> Iterator[Line]:
    """The runs of the exhaustive search, in the order in which they are done."""
    for seed, factor, number in itertools.product(SEEDS, range(len(FACTORS)), range(METHODS)):
        for name in FEDERATIONS:
            yield {"federation": name, "method": methods_of(name)[number], "lr": rates_of(name)[factor], "seed": seed}


def one_run(line: Line, federations: Federations) -> Line:
    """A run with its headline on test data, and on validation data after every round."""
    settings = {**options_of(line["federation"]), "lr": line["lr"], "seed": line["seed"]}
    began = time.monotonic()
    try:
        federation = federations.of(settings)
        with_options = {key: value for key, value in settings.items() if key in RUN_OPTIONS}
        result = ud.run(line["method"], federation, out=False, **with_options)
    except (BadRequest, RunFailed) as error:
        return {**line, "failed": str(error).splitlines()[0]}
    return {**line, **measured(result), "seconds": round(time.monotonic() - began, 2)}


RUN_OPTIONS = (
    "seed", "lr", "model", "rounds", "optimizer", "batch", "epochs", "clip", "engine", "evaluate_every",
)  # fmt: skip


def measured(result: Result) -> Line:
    headline = Headline.of(result.summary)
    curve = [round(value, 5) if value is not None else None for (value,) in result.rows(CURVE, (headline.name,))]
    (trained,) = result.rows("SELECT SUM(json_array_length(cohort)) FROM rounds")[0]
    return {"headline": headline.name, "test": result.headline, "validation": curve, "trained": trained}


def best_of(lines: list[Line], name: str) -> tuple[str, float]:
    """The method and rate with the best mean on the test data of the three seeds."""
    values: dict[tuple[str, float], list[float]] = {}
    for line in lines:
        if line["federation"] == name and line["seed"] in SEEDS:
            values.setdefault((line["method"], line["lr"]), []).append(score(line))
    return max((key for key in values if len(values[key]) == len(SEEDS)), key=lambda key: float(np.mean(values[key])))


def score(line: Line) -> float:
    """The test headline, the larger the better; −∞ for a run that failed."""
    value = line.get("test")
    if value is None or not np.isfinite(value):
        return -np.inf
    return -value if line["headline"] in ("rmse", "perplexity") else value


def exhaustive(path: Path) -> None:
    """Run what is missing."""
    about = {"machine": machine(), "date": time.strftime("%Y-%m-%d")}
    lines, federations = read_lines(path), Federations()
    done = {key_of(line) for line in lines}

    def run_all(asked: list[Line]) -> None:
        for number, line in enumerate(asked):
            if key_of(line) not in done:
                lines.append({**one_run(line, federations), **about})
                with path.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                said = lines[-1].get("failed") or f"{lines[-1]['test']:.4f}"
                print(
                    f"{number + 1}/{len(asked)} {line['federation']}: {line['method']} {line['lr']:g} {said}",
                    flush=True,
                )

    run_all(list(wanted()))
    best = {name: best_of(lines, name) for name in FEDERATIONS}
    run_all([
        {"federation": name, "method": method, "lr": lr, "seed": seed}
        for seed in FRESH for name, (method, lr) in best.items()
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exhaustive",))
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    exhaustive(given.results)


if __name__ == "__main__":
    main()
