"""How good `undrift advise` is: its answers beside an exhaustive search, on fourteen federations, and on five others.

    python benchmarks/advisor.py exhaustive   # docs/results/advisor.jsonl
    python benchmarks/advisor.py advised      # docs/results/advisor-answers.jsonl
    python benchmarks/advisor.py alike        # docs/results/advisor-alike.jsonl
    python benchmarks/advisor.py exhaustive --set blind   # docs/results/advisor-blind.jsonl, and so on

`exhaustive` runs fifteen methods at three rates and three seeds on every federation. It appends a line per run, skips what is
there, and can be stopped at any time. Seeds are the outermost loop and federations the innermost one, so that an early stop
leaves all of them covered alike.

`advised` asks the advisor on every federation, with a quarter of what the exhaustive search cost, and without the rules that
rest on a result of that federation. Its regret is measured on three seeds that neither of the two has seen: the best method of the
exhaustive search minus what the advisor recommends. Runs of the race that the exhaustive search has made are taken from
there (they count all the same); the others are kept in docs/results/advisor-race.jsonl.

`--set blind` does the same on federations that were chosen before any result on them was looked at.

`alike` lets FedAvg race against itself, eight times, with other random streams: whoever is declared a winner is one by chance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from advisor_federations import (
    EVERY,
    EVIDENCE,
    FACTORS,
    FEDERATIONS,
    FRESH,
    METHODS,
    SEEDS,
    SETS,
    methods_of,
    options_of,
    rates_of,
)

import undrift as ud
from undrift.advice.answer import Advice
from undrift.advice.budget import COMPOSITIONS, Plan, best_fitting, plans
from undrift.advice.contenders import best_rates, compositions, other_contenders, plain_contenders
from undrift.advice.diagnosis import diagnose
from undrift.advice.findings import Diagnosis
from undrift.advice.heats import PLAIN, PLAIN_RATES, Contender, Race
from undrift.advice.rules import RULES, Rule
from undrift.advice.runs import FRESH as FROM
from undrift.advice.shortlist import shortlist
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.headline import Headline
from undrift.experiment.result import Result
from undrift.papers.results import machine
from undrift.study.tasks import Federations

Line = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "docs" / "results"
FILES = {"tuned": "advisor", "blind": "advisor-blind"}  # how the names of a set's files begin
SHARE = 0.25  # of the exhaustive search's rounds: the advisor's budget
CURVE = "SELECT value FROM metrics WHERE stage='G' AND data='validation' AND metric=? ORDER BY round"
RUN_OPTIONS = ("seed", "lr", "model", "rounds", "optimizer", "batch", "epochs", "clip", "engine", "evaluate_every")
HEADLINES = {"accuracy": Headline(), "token_accuracy": Headline("token_accuracy", title="TokAcc"),
             "rmse": Headline("rmse", "lower", "RMSE", False)}  # fmt: skip


# ---- runs ------------------------------------------------------------------------------------------------------------


class Kept:
    """Runs by federation, method, rate and seed: taken from files, or made and added to the last of them."""

    def __init__(self, *names: str) -> None:
        self.path, self.federations = RESULTS / f"{names[-1]}.jsonl", Federations()
        self.lines = {self.key(line): line for name in names for line in read_lines(RESULTS / f"{name}.jsonl")}
        self.about = {"machine": machine(), "date": time.strftime("%Y-%m-%d")}

    @staticmethod
    def key(line: Line) -> tuple[Any, ...]:
        return line["federation"], line["method"], line["lr"], line["seed"], line.get("stream", 0)

    def run(self, federation: str, method: str, lr: float, seed: int, stream: int = 0) -> Line:
        """The line of a run. `stream` changes its random draws, not its federation."""
        asked = {"federation": federation, "label": f"{method} lr={lr:g}", "method": method, "lr": lr, "seed": seed}
        asked |= {"stream": stream} if stream else {}
        if self.key(asked) not in self.lines:
            line = {**one_run(asked, self.federations), **self.about}
            self.lines[self.key(asked)] = line
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{federation}: {asked['label']} seed {seed}: {line.get('failed') or line['test']}", flush=True)
        return self.lines[self.key(asked)]


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def one_run(line: Line, federations: Federations) -> Line:
    """A run with its headline on test data, and on validation data after every round."""
    settings = {**options_of(line["federation"]), "lr": line["lr"], "seed": line["seed"]}
    began = time.monotonic()
    try:
        federation = federations.of(settings)
        options = {key: value for key, value in settings.items() if key in RUN_OPTIONS}
        options["seed"] += 100_000 * line.get("stream", 0)
        result = ud.run(line["method"], federation, out=False, **options)
    except (BadRequest, RunFailed) as error:
        return {**line, "failed": str(error).splitlines()[0]}
    return {**line, **measured(result), "seconds": round(time.monotonic() - began, 2)}


def measured(result: Result) -> Line:
    headline = Headline.of(result.summary)
    curve = [round(value, 5) if value is not None else None for (value,) in result.rows(CURVE, (headline.name,))]
    (trained,) = result.rows("SELECT SUM(json_array_length(cohort)) FROM rounds")[0]
    value = None if result.headline is None else round(result.headline, 6)
    return {"rounds": len(curve), "trained": trained, "headline": headline.name, "test": value, "validation": curve}


def exhaustive(which: str) -> None:
    """Run what is missing of the exhaustive search."""
    kept = Kept(FILES[which])
    for seed, factor, number in itertools.product(SEEDS, range(len(FACTORS)), range(METHODS)):
        for name in SETS[which]:
            kept.run(name, methods_of(name)[number], rates_of(name)[factor], seed)


# ---- the advisor's answers -------------------------------------------------------------------------------------------


class CachedRuns:
    """The numbers of a race on a federation, and what they would have cost without the exhaustive search."""

    def __init__(self, kept: Kept, federation: str) -> None:
        self.kept, self.federation, self.done = kept, federation, dict[tuple[Contender, int], tuple[int, int]]()

    def line(self, one: Contender, seed: int, rounds: int | None = None) -> Line:
        line = self.kept.run(self.federation, one.method, one.lr, seed)
        before, _ = self.done.get((one, seed), (0, 0))
        self.done[one, seed] = (
            max(before, rounds or line.get("rounds", 0)),
            line.get("trained", 0) // max(1, line.get("rounds", 1)),
        )
        return line

    def scores(self, asked: Sequence[Contender], seeds: int, rounds: int) -> dict[Contender, list[float]]:
        return {one: [self.score(one, seed, rounds) for seed in range(seeds)] for one in asked}

    def score(self, one: Contender, seed: int, rounds: int) -> float:
        line = self.line(one, seed, rounds)
        value = None if "failed" in line else line["validation"][rounds - 1]
        return -np.inf if value is None else HEADLINES[line["headline"]].sign * value

    def fresh(self, asked: Sequence[Contender], seeds: Sequence[int]) -> dict[str, list[Line]]:
        return {one.label: [row(self.line(one, seed)) for seed in seeds] for one in asked}

    @property
    def cost(self) -> int:
        """Rounds × clients trained."""
        return sum(rounds * clients for rounds, clients in self.done.values())


def row(line: Line) -> Line:
    return {"headline": {"value": line.get("test")}, "seed": line["seed"], "run": "", "stages": {}}


def race_of(field: Sequence[Contender], name: str, share: float) -> tuple[Plan, Race]:
    """The race that so large a share of the exhaustive search's rounds pays for."""
    rounds = EVERY[name]["rounds"]
    offered = plans(
        len({one.name for one in field}), len(field), rounds, min(PLAIN_RATES, sum(one.plain for one in field))
    )
    whole = METHODS * len(FACTORS) * len(SEEDS) * rounds
    plan = best_fitting(offered, lambda one: one.cost() <= share * whole) or offered[0]
    return plan, Race(plan, field, lambda survivors: compositions(survivors, COMPOSITIONS))


def answer(race: Race, plan: Plan, runs: CachedRuns, headline: Headline, diagnosis: Diagnosis) -> Advice:
    """The heats and the fresh seeds, with the decision of the advisor."""
    race.run(runs, sign=headline.sign)
    judged = [one for one in (race.challenger, race.plain) if one is not None]
    fresh = runs.fresh(judged, range(FROM, FROM + plan.fresh))
    return Advice(Path(), {}, diagnosis, tuple(race.heats), race.plain, race.challenger, fresh, headline)


def rules_without(name: str) -> list[Rule]:
    """The rules that do not rest on a result of this federation."""
    return [
        rule for rule in RULES
        if rule.kept is None
        or (rule.kept.where.get("federation") != name and (rule.kept.file, rule.kept.where.get("column")) not in EVIDENCE.get(name, ()))
    ]  # fmt: skip


def advised(which: str) -> None:
    """A line per federation: what the advisor recommends, what the exhaustive search found, and the regret."""
    kept = Kept(FILES[which], f"{FILES[which]}-race")
    with (RESULTS / f"{FILES[which]}-answers.jsonl").open("w") as file:
        for name in SETS[which]:
            line = {**asked_about(name, kept), **kept.about}
            file.write(json.dumps(line) + "\n")
            file.flush()
            print({key: line[key] for key in ("federation", "recommended", "best", "regret", "share")}, flush=True)


def asked_about(name: str, kept: Kept) -> Line:
    options = options_of(name)
    federation = kept.federations.of({**options, "seed": 0})
    diagnosis = diagnose(options, federation)
    found = shortlist(diagnosis, options, federation, rules=rules_without(name))
    runs, headline = CachedRuns(kept, name), HEADLINES[kept.run(name, PLAIN, rates_of(name)[1], 0)["headline"]]
    plain = plain_contenders(found.candidates, rates_of(name)[1])
    scores = runs.scores(plain, 1, -(-EVERY[name]["rounds"] // 2))
    plan, race = race_of([*plain, *other_contenders(found.candidates, best_rates(plain, scores))], name, SHARE)
    advice = answer(race, plan, runs, headline, diagnosis)
    assert advice.recommended is not None
    best = best_of(kept, name, headline)
    value = {
        label: [kept.run(name, method, lr, seed)["test"] for seed in FRESH]
        for label, method, lr in (("best", *best), ("advisor", advice.recommended.method, advice.recommended.lr))
    }
    scale = headline.sign * (headline.factor if headline.percent else 100 / float(np.mean(value["best"])))
    gaps = [scale * (a - b) for a, b in zip(value["best"], value["advisor"])]
    whole = sum(
        kept.run(name, method, lr, seed)["trained"]
        for method in methods_of(name)
        for lr in rates_of(name)
        for seed in SEEDS
    )
    gap = advice.difference
    return {
        "federation": name, "axes": list(diagnosis.axes), "shortlist": [one.method for one in found.candidates],
        "challenger": race.challenger.label if race.challenger else None, "plain": race.plain.label, "clear": advice.clear,
        "recommended": advice.recommended.label, "best": f"{best[0]} lr={best[1]:g}",
        "difference": None if gap is None else [gap.estimate, gap.low, gap.high], "fresh": plan.fresh, "headline": headline.name,
        "values": value, "regrets": gaps, "regret": float(np.mean(gaps)), "cost": runs.cost, "share": runs.cost / whole,
    }  # fmt: skip


def best_of(kept: Kept, name: str, headline: Headline) -> tuple[str, float]:
    """The method and rate with the best mean on the test data of the exhaustive search's seeds."""

    def mean(point: tuple[str, float]) -> float:
        values = [kept.run(name, *point, seed).get("test") for seed in SEEDS]
        return -np.inf if None in values else float(headline.sign * np.mean(values))

    return max(itertools.product(methods_of(name), rates_of(name)), key=mean)


# ---- alike -----------------------------------------------------------------------------------------------------------


def alike(which: str) -> None:
    """A line per federation on which FedAvg raced against itself."""
    if which != "tuned":
        raise SystemExit("alike has no set of its own: nothing in it was tuned")
    answers = {line["federation"]: line for line in read_lines(RESULTS / "advisor-answers.jsonl")}
    kept = Kept("advisor", "advisor-race", "advisor-streams")
    with (RESULTS / "advisor-alike.jsonl").open("w") as file:
        for name in list(FEDERATIONS)[:12]:
            lr = float(answers[name]["plain"].partition("lr=")[2])
            field = [Contender(PLAIN, lr, PLAIN)] + [Contender(f"{PLAIN}#{n}", lr, f"stream {n}") for n in range(1, 8)]
            plan, race = race_of(field, name, SHARE)
            race.compose = lambda survivors: ()
            runs, headline = AlikeRuns(kept, name), HEADLINES[answers[name]["headline"]]
            advice = answer(race, plan, runs, headline, Diagnosis(()))
            gap = advice.difference
            assert gap is not None
            line = {
                "federation": name,
                "winner": advice.clear,
                "difference": [gap.estimate, gap.low, gap.high],
                "seeds": gap.seeds,
            }
            file.write(json.dumps({**line, **kept.about}) + "\n")
            file.flush()
            print(line, flush=True)


class AlikeRuns(CachedRuns):
    """Every contender is FedAvg, with random streams of its own on the same federations."""

    def line(self, one: Contender, seed: int, rounds: int | None = None) -> Line:
        stream = 0 if one.plain else int(one.name.split()[-1])
        return self.kept.run(self.federation, PLAIN, one.lr, seed, stream)


COMMANDS = {"exhaustive": exhaustive, "advised": advised, "alike": alike}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("--set", choices=SETS, default="tuned")
    asked = parser.parse_args()
    COMMANDS[asked.what](asked.set)


if __name__ == "__main__":
    main()
