"""`ud.advise`: measure a federation, shortlist methods, race them, answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undrift.advice import budget as budgets
from undrift.advice.answer import Advice
from undrift.advice.budget import Plan, read_budget
from undrift.advice.contenders import compositions
from undrift.advice.diagnosis import diagnose
from undrift.advice.findings import Diagnosis
from undrift.advice.heats import Contender, HeatResult, Race
from undrift.advice.pace import Pace
from undrift.advice.race_file import Asked, write_race
from undrift.advice.shortlist import Constraints
from undrift.advice.start import Start, check_validation, chosen_plan, estimate, prepared
from undrift.core.errors import BadRequest
from undrift.experiment.folders import free_name, next_free
from undrift.experiment.given import with_given
from undrift.experiment.options import FIELDS, from_keywords
from undrift.federation.federation import Federation
from undrift.store.durable import make_folder, write_file
from undrift.study.tasks import Federations, StudyCallback

VALIDATION = 0.2
NO_EFFECT = (
    "method",
    "lr",
    "seed",
    "data_seed",
    "out",
    "force",
    "evaluate_every",
    "evaluate_at",
    "evaluate_clients",
    "stop_at",
    "track",
)


GIVEN = "All of this is about the federation that was given: seeds vary cohorts and starts, not who holds what."


class AdviceCallback(StudyCallback):
    """Called while the advisor works. Every method does nothing by default: override what you need."""

    def on_diagnosis(self, diagnosis: Diagnosis) -> None:
        """After the federation was measured."""

    def on_plan(self, contenders: Sequence[Contender], plan: Plan, seconds: float) -> None:
        """Before the first heat: who takes part, and how long it takes at most."""

    def on_heat(self, number: int, heat: HeatResult) -> None:
        """After a heat (1-based)."""


def advise(
    federation: Federation | None = None,
    *,
    budget: str = "10m",
    constraints: Constraints | None = None,
    everything: bool = False,
    methods: Sequence[str] = (),
    out: str | Path | None = None,
    callback: AdviceCallback | None = None,
    **options: Any,
) -> Advice:
    """Which method for this federation, with evidence.

    The federation is measured, methods that cannot help are left out, the others race on validation data, and the best of them
    is compared with plain averaging on fresh seeds and test data. What counts is the global model, or with
    `constraints=Constraints(personal="yes")` what clients use, on their own data. `federation` comes from `ud.federate` or
    `ud.Federation` and needs validation data. Without one, the keywords `data`, `partition`, `clients` … make it, anew for
    every seed. The other keywords are the options of `undrift run`. `lr` is the middle one of the three rates that are raced.

    `budget` is "10m" (minutes) or "2000r" (rounds). `everything=True` races every method that applies, `methods` adds some to
    the shortlist. The runs are kept in `out` (default runs/DATA-advise-N).

        advice = ud.advise(ud.federate("digits", "dirichlet(0.1)", clients=20, validation=0.2), budget="3m")
        print(advice)
        advice.recommended, advice.difference, advice.report()
    """
    read_budget(budget)
    options = with_given(options, federation)
    seed, data_seed, about = int(options.pop("seed", 0)), options.pop("data_seed", None), tuple[str, ...]()
    if federation is not None:
        if not federation.validation:
            raise BadRequest("the federation has no validation data to choose on; make it with validation=0.2")
        data_seed, about = federation.seed, (GIVEN,)
    asked = Asked(
        plain_options(options),
        budget,
        constraints or Constraints(),
        everything,
        tuple(methods),
        seed,
        data_seed,
        None,
        about,
    )
    return carry_out(asked, race_folder(asked, out), federation, callback)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all runs, checked. What the race sets itself is left out, and the rate stays as the middle one."""
    from_keywords({key: value for key, value in options.items() if key != "out"})
    rounds, lr = (options.get(key, FIELDS[key].default) for key in ("rounds", "lr"))
    kept = {key: value for key, value in options.items() if key not in NO_EFFECT}
    return {**kept, "rounds": rounds, "lr": lr, "validation": options.get("validation") or VALIDATION}


def race_folder(asked: Asked, out: str | Path | None) -> Path:
    """The folder of a new race, with its advise.toml."""
    if out is None:
        data = Path(str(asked.options.get("data", "digits"))).stem.partition("(")[0]
        folder = next_free(Path("runs"), f"{data}-advise")
    else:
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(
                f"{folder} is taken; use {free_name(folder)}, or --resume {folder} to finish what it holds"
            )
        try:
            make_folder(folder)
        except OSError as error:
            raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
    write_race(folder, asked)
    return folder


def carry_out(
    asked: Asked, folder: Path, federation: Federation | None = None, callback: AdviceCallback | None = None
) -> Advice:
    """Run or finish the race in a folder."""
    callback, began = callback or AdviceCallback(), time.monotonic()
    federations = Federations(federation)
    try:
        first = federations.of({**asked.options, "seed": asked.seed, "data_seed": asked.data_seed})
        check_validation(first)
        diagnosis = known_diagnosis(folder) or diagnose(asked.options, first, callback.on_message)
        callback.on_diagnosis(diagnosis)
        start = prepared(asked, folder, federations, first, diagnosis, callback, began)
        seconds = read_budget(asked.budget).seconds if asked.rounds is None else None
        field, plan, asked = chosen_plan(asked, start, folder)
        pace = Pace(seconds, start.plans(), lambda: start.runs.rounds_run, began) if seconds else None
    except BadRequest:
        remove_unused(folder)
        raise
    criterion = start.runs.criterion
    said = criterion.sentence(start.headline)
    advice = Advice(
        folder,
        {**asked.options},
        diagnosis,
        headline=start.headline,
        left_out=tuple(start.left_out),
        about=asked.about + ((said,) if said else ()),
        criterion=criterion,
    )
    keep(advice)
    most = estimate(plan, start) if asked.rounds else 0.0
    callback.on_plan(field, plan, most)
    return raced(advice, Race(plan, field, composed), start, asked, callback, pace)


def composed(survivors: Sequence[Contender]) -> list[Contender]:
    return compositions(survivors, budgets.COMPOSITIONS)


def raced(
    advice: Advice, race: Race, start: Start, asked: Asked, callback: AdviceCallback, pace: Pace | None = None
) -> Advice:
    """The heats, then fresh seeds. Ctrl-C gives the answer so far."""
    planned = race.plan

    def spent() -> dict[str, Any]:
        return {
            "asked": asked.budget, "rounds": race.plan.cost(), "run": start.runs.rounds_run,
            "repeat": race.plan.spelled(start.plans()), "seconds": round(time.monotonic() - start.began, 1),
        }  # fmt: skip

    def so_far(**more: Any) -> Advice:
        plain, challenger = (race.plain, race.challenger) if race.heats else (None, None)
        heats = tuple(race.heats)
        return replace(advice, heats=heats, plain=plain, challenger=challenger, budget=spent(), **more)

    def record() -> None:
        if race.plan != planned:
            stages = race.plan.stages()
            write_race(advice.folder, replace(asked, rounds=sum(stages), stages=stages))

    def after_heat(heat: HeatResult) -> None:
        record()
        keep(so_far())
        callback.on_heat(len(race.heats), heat)

    try:
        race.run(start.runs, after_heat, start.headline.sign, pace)
        judged = [one for one in (race.challenger, race.plain) if one is not None]
        if pace:
            race.plan = pace.fresh(race.plan, lambda seeds: start.runs.fresh(judged, seeds))
            record()
        rows = start.runs.fresh(judged, race.plan.fresh)
        done = so_far(fresh={one.label: rows[one] for one in judged})
    except KeyboardInterrupt:
        done = so_far(stopped=f"Stopped; no run is lost: `undrift advise --resume {advice.folder}` continues.")
    if race.plan != planned:
        callback.on_message(f"the minutes paid for {race.plan.cost():,} rounds instead of {planned.cost():,}")
    keep(done)
    return done


def known_diagnosis(folder: Path) -> Diagnosis | None:
    """The diagnosis that the race in a folder has already made."""
    try:
        return Diagnosis.from_json(json.loads((folder / "advise.json").read_text())["diagnosis"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(advice: Advice) -> None:
    """Write advise.json, the answer so far."""
    write_file(advice.folder / "advise.json", (json.dumps(advice.as_json(), indent=1) + "\n").encode())


def remove_unused(folder: Path) -> None:
    """Remove the folder of a race that was refused before its first run."""
    if {path.name for path in folder.iterdir()} <= {"advise.toml", "advise.json"}:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
