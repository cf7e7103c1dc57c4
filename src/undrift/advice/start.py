"""Before the first heat: which methods can run, at which rates they race, and what the budget pays for."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from undrift.advice.budget import PROBE, Budget, Plan, best_fitting, plans, read_budget, staged
from undrift.advice.contenders import FACTORS, RATES, best_rates, other_contenders, plain_contenders
from undrift.advice.criterion import criterion_for
from undrift.advice.findings import Diagnosis
from undrift.advice.heats import PLAIN_RATES, Contender
from undrift.advice.race_file import Asked, write_race
from undrift.advice.runs import RaceRuns
from undrift.advice.shortlist import Candidate, shortlist
from undrift.core.errors import BadRequest
from undrift.core.headline import Headline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import run_task
from undrift.federation.federation import Federation
from undrift.study.dry_run import Estimate, dry_run
from undrift.study.tasks import Federations, StudyCallback
from undrift.study.verdict import counted

LEAST_VALIDATION = 20  # samples: fewer cannot tell methods apart


@dataclass
class Start:
    """A race that is ready: which methods take part, where the runs are, how results read."""

    candidates: list[Candidate]
    lr: float
    runs: RaceRuns
    headline: Headline
    left_out: list[tuple[str, str]]
    began: float

    def plans(self) -> list[Plan]:
        """The plans for these methods. How many points there are does not depend on the rates."""
        plain, others = (
            self.plain(),
            other_contenders(self.candidates, [self.lr * factor for factor in FACTORS[:RATES]]),
        )
        return plans(len(self.candidates), len(plain) + len(others), self.runs.whole, min(PLAIN_RATES, len(plain)))

    def plain(self) -> list[Contender]:
        return plain_contenders(self.candidates, self.lr)

    def field(self) -> list[Contender]:
        """All contenders. Plain averaging runs first, because the others get the rates that suit it."""
        plain = self.plain()
        scores = self.runs.scores(plain, 1, self.plans()[0].heats[0].rounds)
        return [*plain, *other_contenders(self.candidates, best_rates(plain, scores))]


def prepared(
    asked: Asked,
    folder: Path,
    federations: Federations,
    first: Federation,
    diagnosis: Diagnosis,
    callback: StudyCallback,
    began: float,
) -> Start:
    """Shortlist methods, and set up each of them once: what cannot run is left out with the reason."""
    found = shortlist(diagnosis, asked.options, first, asked.constraints, asked.everything)
    added = [Candidate(text, "named", None, (), "named by the user", "untested") for text in asked.methods]
    candidates = list({one.method: one for one in [*found.candidates, *added]}.values())
    criterion = criterion_for(asked.constraints.personal)
    seeds = (asked.seed, asked.data_seed)
    runs = RaceRuns(folder, asked.options, federations, callback, seeds, criterion=criterion)
    left_out, expected, lr = list(found.left_out), dict[str, Estimate](), float(asked.options["lr"])
    for candidate in list(candidates):
        try:
            point = Contender(candidate.method, lr, candidate.method)
            estimate = dry_run([runs.task(point, asked.seed, runs.whole)], federations, StudyCallback())[0]
            if not estimate.has_global_model and not criterion.of_clients:
                raise BadRequest(
                    "it has no global model to compare; with --personal yes or either, methods are compared by what clients use"
                )
        except BadRequest as error:
            if candidate.axis in ("plain", "named"):
                raise BadRequest(f"{candidate.method} cannot run here: {error}") from None
            left_out.append((candidate.method, str(error)))
            candidates.remove(candidate)
        else:
            expected[candidate.method] = estimate
    if len(candidates) < 2:
        raise BadRequest("only plain averaging can run here, so there is nothing to race; name a method with --try")
    runs.expected, runs.numbers = expected, {}
    task = run_task(from_keywords({**asked.options}), first)
    start = Start(candidates, lr, runs, task.shown, left_out, began)
    runs.scored_after = tuple(heat.rounds for heat in start.plans()[0].heats)  # the same in every plan
    return start


def chosen_plan(asked: Asked, start: Start, folder: Path) -> tuple[list[Contender], Plan, Asked]:
    """The contenders, the largest plan that the budget pays for, and the question with its rounds."""
    offered, given = start.plans(), read_budget(asked.budget)
    whole = asked.rounds if asked.rounds is not None else given.rounds
    plan: Plan | None
    if stages := asked.stages or given.stages:
        plan = staged(offered[0], stages)
        if not plan.heats[0].seeds or not plan.fresh:
            raise too_small(given, offered[0], "+".join(f"{rounds}r" for rounds in offered[0].stages()))
        field = start.field()
    elif whole is not None:
        plan = best_fitting(offered, lambda one: one.cost() <= whole)
        if plan is None:
            raise too_small(given, offered[0], f"{offered[0].cost()}r")
        field = start.field()
    else:
        field = start.field()
        first = {one.name: one for one in reversed(field)}.values()  # every method at its first point
        speed = start.runs.probe(list(first), min(PROBE, start.runs.whole))
        spent = time.monotonic() - start.began
        plan = best_fitting(offered, lambda one: seconds_of(one, speed, start.runs) <= (given.seconds or 0.0) - spent)
        if plan is None:
            need = math.ceil((seconds_of(offered[0], speed, start.runs) + spent) / 60)
            raise too_small(given, offered[0], f"{need}m")
    asked = replace(asked, rounds=plan.cost())
    write_race(folder, asked)
    return field, plan, asked


def too_small(given: Budget, least: Plan, need: str) -> BadRequest:
    return BadRequest(
        f"a budget of {given} is too small for one race of {counted(least.points, 'contender')} over {least.rounds} rounds; give "
        f"--budget {need}, or fewer --rounds"
    )


def seconds_of(plan: Plan, speed: tuple[float, float], runs: RaceRuns) -> float:
    """How long a plan takes here, at most. `speed`: seconds of starting a run, and of a round."""
    return (plan.segments() * speed[0] + plan.cost() * speed[1]) / runs.at_once(plan.cost() // len(plan.heats))


def estimate(plan: Plan, start: Start) -> float:
    """Expected seconds of training of a plan, from the time of one step."""
    known = [one.seconds for one in start.runs.expected.values() if one.seconds]
    whole = sum(known) / len(known) if known else 0.0
    return plan.cost() / start.runs.whole * whole / start.runs.at_once(plan.cost() // len(plan.heats))


def check_validation(federation: Federation) -> None:
    """Refuse a federation on which nothing can be chosen."""
    held = len(federation.validation_rows())
    if held < LEAST_VALIDATION:
        size = int(federation.sizes.sum()) + held
        raise BadRequest(
            f"the federation has {counted(held, 'validation sample')} of {size:,} in all, too few to choose a method on; it needs "
            f"at least {LEAST_VALIDATION}: give --validation {min(0.5, math.ceil(100 * LEAST_VALIDATION / size) / 100):g}, or more data"
        )
