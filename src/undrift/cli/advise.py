"""`undrift advise`: which method for this federation."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from undrift.cli.settings import read_as, with_options
from undrift.core.errors import BadRequest
from undrift.core.words import clock

if TYPE_CHECKING:
    from undrift.advice.advisor import Asked
    from undrift.advice.answer import Advice
    from undrift.advice.shortlist import Constraints


def add(app: typer.Typer) -> None:
    app.command("advise")(with_options(advise))


def advise(
    given: dict[str, Any],
    source: str | None = typer.Argument(
        None, metavar="DATA|RUN.toml", help="a data set, or a run whose settings are used"
    ),
    budget: str = typer.Option("10m", "--budget", help="what the race may cost: 10m, 1.5h, or rounds as in 2000r"),
    everything: bool = typer.Option(False, "--all", help="race every method that applies, not only the shortlist"),
    also: list[str] = typer.Option([], "--try", help="race this method too; repeatable"),
    client_memory: str | None = typer.Option(
        None, "--client-memory", help="megabytes that a method may keep at a client", metavar="VALUE"
    ),
    may_leave: str | None = typer.Option(
        None, "--may-leave", help="what may leave a site: model, or model+numbers [everything]", metavar="VALUE"
    ),
    with_dp: bool = typer.Option(False, "--with-dp", help="only methods that work with differential privacy"),
    personal: str = typer.Option(
        "no", "--personal", help="models of the clients' own: no, yes, either", metavar="VALUE"
    ),
    sketch: str | None = typer.Option(
        None,
        "--sketch",
        help="at a site: write counts and scores of its data to this file, and race nothing",
        metavar="FILE",
    ),
    no_label_counts: bool = typer.Option(
        False, "--no-label-counts", help="with --sketch: do not tell the label counts"
    ),
    no_wrong_labels: bool = typer.Option(
        False, "--no-wrong-labels", help="with --sketch: do not tell the share of wrong labels"
    ),
    round_to: str | None = typer.Option(
        None, "--round-to", help="with --sketch: round counts to this [1]", metavar="VALUE"
    ),
    from_sketches: list[str] = typer.Option(
        [], "--from-sketches", help="race on a federation like these sketches, made of DATA; repeatable", metavar="FILE"
    ),
    resume: str | None = typer.Option(None, "--resume", help="finish the race in this folder", metavar="FOLDER"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
    trust: bool = typer.Option(False, "--trust", help="with --resume: import the code that the folder names"),
) -> None:
    """Measure a federation, race the methods that may help on validation data, and say which to use and how sure that is."""
    from undrift.advice.advisor import carry_out, race_folder

    if sketch is not None:
        return write_a_sketch(
            sketch, options_of(source, given), not no_label_counts, not no_wrong_labels, round_to, json
        )
    if no_label_counts or no_wrong_labels or round_to is not None:
        raise BadRequest("--no-label-counts, --no-wrong-labels and --round-to say what --sketch FILE may tell; add it")
    if resume is not None:
        asked, folder = found_again(resume, source, given, trust)
    else:
        allowed = constraints(client_memory, may_leave, with_dp, personal)
        asked = question(source, given, budget, allowed, everything, also, from_sketches)
        folder = race_folder(asked, given.get("out"))
    board = advice_board(quiet, log)
    try:
        advice = carry_out(asked, folder, callback=board)
    finally:
        board.end()
    present(advice, json, quiet)
    if advice.stopped:
        raise KeyboardInterrupt("stopped")  # the answer says how to go on


def constraints(memory: str | None, may_leave: str | None, dp: bool, personal: str) -> Constraints:
    """What the user allows, checked."""
    from typing import Literal

    from undrift.advice.shortlist import Constraints
    from undrift.core.schema import Positive

    size = read_as(Positive | None, "client-memory", memory)
    leave = read_as(Literal["model", "model+numbers"] | None, "may-leave", may_leave)
    return Constraints(size, leave, dp, read_as(Literal["no", "yes", "either"], "personal", personal))


def question(
    source: str | None,
    given: dict[str, Any],
    budget: str,
    allowed: Constraints,
    everything: bool,
    also: Sequence[str],
    sketches: Sequence[str],
) -> Asked:
    """What is asked, from the command line."""
    from undrift.advice.advisor import plain_options
    from undrift.advice.budget import read_budget
    from undrift.advice.race_file import Asked

    read_budget(budget)
    if "method" in given:
        raise BadRequest("advise chooses the method; --try NAME races one more")
    options, about = options_of(source, given), tuple[str, ...]()
    if sketches:
        options, sentence = like_sketches(options, sketches, given)
        about = (sentence,)
    seed, data_seed = given.get("seed", 0), given.get("data_seed")
    return Asked(plain_options(options), budget, allowed, everything, tuple(also), seed, data_seed, None, about)


def options_of(source: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a run: those of a run.toml or of named data, and those that were typed."""
    from undrift.data.catalogue import full_path
    from undrift.experiment.run_toml import read_toml

    table: dict[str, Any] = {}
    if source is not None and (source.endswith(".toml") or (Path(source) / "run.toml").exists()):
        table = read_toml(Path(source) / "run.toml" if Path(source).is_dir() else Path(source))
        table = {key: value for key, value in table.items() if key not in ("method", "parts", "seed", "data_seed")}
    elif source is not None:
        if "data" in given:
            raise BadRequest(f"the data are named twice: {source} and --data {given['data']}; name them once")
        table = {"data": source}
    options = {**table, **{key: value for key, value in given.items() if key not in ("seed", "data_seed", "out")}}
    return {**options, "data": full_path(options["data"])} if "data" in options else options


def like_sketches(
    options: dict[str, Any], sketches: Sequence[str], given: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """The options of a federation of the sites' shape, and the sentence that says so."""
    from undrift.advice.sketch import like, read_sketches

    for name in ("partition", "clients", "noise"):
        if name in given:
            raise BadRequest(f"--{name} is told by the sketches; leave it out")
    twin = like(read_sketches(sketches), options.get("data", "digits"), given.get("seed", 0))
    return {**options, **twin.options}, f"{twin.sentence[0].upper()}{twin.sentence[1:]}."


def write_a_sketch(
    path: str, options: dict[str, Any], labels: bool, wrong_labels: bool, round_to: str | None, json: bool
) -> None:
    """Write what a site agrees to tell about its data."""
    from undrift.advice.sketch import Policy, write_sketch
    from undrift.core.schema import Count
    from undrift.experiment.options import from_keywords
    from undrift.experiment.setup import build_federation

    policy = Policy(labels, wrong_labels, read_as(Count, "round-to", round_to) or 1)
    federation = build_federation(from_keywords({"partition": "iid", "clients": 1, **options}))
    try:
        told = write_sketch(path, federation, policy, Path(path).stem)
    except OSError as error:
        raise BadRequest(f"--sketch {path} cannot be written: {error.strerror or error}; choose another file") from None
    print(
        json_module.dumps(told)
        if json
        else f"sketch: {path}, which tells {', '.join(k for k, v in told.items() if v is not None)}"
    )


def found_again(resume: str, source: str | None, given: dict[str, Any], trust: bool) -> tuple[Asked, Path]:
    """The race to finish."""
    from undrift.advice.race_file import read_race
    from undrift.cli.trust import ask_trust
    from undrift.experiment.folders import find_folder
    from undrift.experiment.foreign_code import foreign_code

    if source is not None or given:
        raise BadRequest(f"--resume {resume} finishes a race as it was asked; leave the other options out")
    folder = find_folder(resume)
    asked = read_race(folder)
    if any(str(value).startswith("object:") for value in asked.options.values()):
        raise BadRequest(f"{folder} has objects that advise.toml cannot name; ask again in Python with ud.advise(…)")
    names = [name for text in ("fedavg", *asked.methods) for name in foreign_code({**asked.options, "method": text})]
    ask_trust(folder, list(dict.fromkeys(names)), trust)
    return asked, folder


def advice_board(quiet: bool, log: str | None) -> Any:
    """Progress on stderr: findings, the plan, and who left a heat."""
    from undrift.advice.advisor import AdviceCallback
    from undrift.cli.board import Board

    class AdviceBoard(Board, AdviceCallback):
        def on_diagnosis(self, diagnosis: Any) -> None:
            self.say("What was measured:")
            for finding in diagnosis.findings:
                self.say(f"  · {finding.line}")

        def on_plan(self, contenders: Any, plan: Any, seconds: float) -> None:
            names = list(dict.fromkeys(one.name for one in contenders))
            self.say(
                f"{len(names)} methods at {len(contenders)} points race in {len(plan.heats)} heats: {', '.join(names)}"
            )
            least = f"; training takes about {clock(seconds)}" if seconds > 10 else ""
            self.say(f"at most {plan.cost():,} rounds, {plan.fresh} fresh seeds{least}")

        def on_heat(self, number: int, heat: Any) -> None:
            from undrift.study.verdict import counted

            self.end_live()
            kept = [f"{s.contender.label}" for s in heat.standings if s.outcome in ("leader", "kept")]
            behind, budget = (sum(s.outcome == what for s in heat.standings) for what in ("behind", "budget"))
            self.say(f"heat {number} ({heat.heat.rounds} rounds, {counted(heat.heat.seeds, 'seed')}): {len(kept)} go on, the leader is "
                     f"{kept[0] if kept else 'nobody'}; {behind} behind, {budget} dropped for budget")  # fmt: skip

    return AdviceBoard(quiet, log)


def present(advice: Advice, json: bool, quiet: bool) -> None:
    """The paragraph (for people), one JSON object (for scripts), and the page."""
    path = advice.report()
    stream = sys.stderr if json else sys.stdout
    if not quiet or not json:
        print(f"\n{advice}\n\npage: {path}", file=stream)
        if advice.run is not None:
            print(f"deploy it: undrift deploy init FOLDER --run {shlex.quote(str(advice.run))} --sites …", file=stream)
    if json:
        print(json_module.dumps(advice.as_json()))
