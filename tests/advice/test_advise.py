"""A whole race on a small federation: paused runs, Ctrl-C, repetition, refusals, and what the answer says."""

from __future__ import annotations

import itertools
import json
import math
import shlex

import pytest

import undrift as ud
from undrift.advice import advisor, start
from undrift.advice.advisor import AdviceCallback, carry_out
from undrift.advice.contenders import best_rates, compositions, other_contenders, plain_contenders
from undrift.advice.criterion import CLIENTS_MODELS, GLOBAL_MODEL
from undrift.advice.findings import Diagnosis, Finding
from undrift.advice.heats import Contender
from undrift.advice.pace import Pace
from undrift.advice.race_file import read_race
from undrift.advice.runs import RaceRuns
from undrift.advice.shortlist import Candidate, Constraints, Shortlist
from undrift.cli.app import app
from undrift.core.errors import BadRequest
from undrift.store.record import rows_of
from undrift.study.comparison import safe
from undrift.study.dry_run import dry_run
from undrift.study.tasks import Federations, StudyCallback

BUDGET = "100r"  # of the smallest plan
SMALL = {"data": "digits", "partition": "dirichlet(0.3)", "clients": 4, "rounds": 4, "validation": 0.2, "epochs": 1}
FEDAVG, SCAFFOLD, FEDPER = (Contender(name, 0.05, name) for name in ("fedavg", "scaffold", "fedper"))


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Neither a diagnosis nor a shortlist: both have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advisor, "diagnose", lambda *_: Diagnosis((Finding("label_skew", 0.5, "labels differ"),)))
        plain = [Candidate(name, "plain", None, (), "a control", "untested") for name in ("fedavg", "fedavg-uniform")]
        patch.setattr(start, "shortlist", lambda *_: Shortlist(tuple(plain), (("fedbn", "no norms"),)))
        yield


@pytest.fixture(scope="module")
def raced(tmp_path_factory, quick):
    return ud.advise(budget=BUDGET, methods=["scaffold"], out=tmp_path_factory.mktemp("race") / "digits", **SMALL)


def hashes(advice):
    return {label: [row["model_sha256"] for row in rows] for label, rows in advice.fresh.items()}


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contender", "criterion"),
    [(FEDAVG, GLOBAL_MODEL), (SCAFFOLD, GLOBAL_MODEL), (FEDAVG, CLIENTS_MODELS), (FEDPER, CLIENTS_MODELS)],
)
def test_a_run_that_paused_twice_is_the_run_that_never_did(tmp_path, contender, criterion):
    def runs(name):
        options = {**SMALL, "lr": 0.05}
        found = RaceRuns(tmp_path / name, options, Federations(), StudyCallback(), criterion=criterion)
        found.scored_after = (1, 3)
        return found

    paused, whole = runs("paused"), runs("whole")
    first = [paused.scores([contender], 1, rounds)[contender][0] for rounds in (1, 3)]
    rows = [one.advance([one.task(contender, 0, 4)])[0] for one in (paused, whole)]
    assert rows[0]["model_sha256"] == rows[1]["model_sha256"]
    assert first == [whole.scores([contender], 1, rounds)[contender][0] for rounds in (1, 3)]
    assert (paused.rounds_run, whole.rounds_run) == (4, 4)
    assert all(map(math.isfinite, first))
    metrics = "SELECT round, client, stage, data, metric, value FROM metrics ORDER BY 1, 2, 3, 4, 5"
    assert rows_of(paused.folder / paused.task(contender, 0, 4).name, metrics) == rows_of(
        whole.folder / whole.task(contender, 0, 4).name, metrics
    )


def test_contenders_that_share_stacks_pause_and_continue_as_they_do_alone(tmp_path):
    asked, seeds = [FEDAVG, Contender("fedavg-uniform", 0.2, "fedavg-uniform")], (0, 1)

    def raced(name, known):
        """The runs' models and validation scores, paused after the second round."""
        runs = RaceRuns(tmp_path / name, {**SMALL, "lr": 0.05}, Federations(), callback := Said())
        tasks = [runs.task(one, 0, 4) for one in asked]
        runs.expected = dict(zip([one.name for one in asked], dry_run(tasks, Federations(), callback))) if known else {}
        scores = runs.scores(asked, len(seeds), 2)
        rows = runs.advance([runs.task(one, seed, 4) for one in asked for seed in seeds])
        return scores, [row["model_sha256"] for row in rows], callback.plans

    (scores, models, plans), (alone, models_alone, plans_alone) = raced("together", True), raced("alone", False)
    assert (scores, models) == (alone, models_alone)
    assert all("side by side" in plan for plan in plans)
    assert not any("side by side" in plan for plan in plans_alone)


class Said(StudyCallback):
    """Keeps how the runs share the machine."""

    def __init__(self):
        self.plans = []

    def on_start(self, tasks, plan, cores):
        self.plans.append(plan)


# ---- contenders ------------------------------------------------------------------------------------------------------


def test_plain_averaging_races_at_three_rates_and_the_others_at_the_two_that_suit_it():
    field = [
        Candidate("fedavg", "plain", None, (), "", ""),
        Candidate("fedbss+feddyn", "drift", "alpha", (0.01, 0.1), "", ""),
    ]
    plain = plain_contenders(field, 0.1)
    assert [one.lr for one in plain] == [0.025, 0.1, 0.4]
    rates = best_rates(plain, dict(zip(plain, [[0.3], [0.5], [0.6]])))
    assert rates == [0.4, 0.1]
    assert [(one.method, one.lr) for one in other_contenders(field, rates)] == [
        ("fedbss+feddyn", 0.4), ("fedbss+feddyn", 0.1), ("fedbss+feddyn(alpha=0.1)", 0.4),
    ]  # fmt: skip


def test_survivors_on_different_axes_are_joined_and_nothing_is_raced_twice():
    field = [Contender(name, lr, name) for name, lr in (("scaffold", 0.1), ("fedavgm", 0.2), ("fedavg-uniform", 0.3))]
    found = [(one.method, one.lr) for one in compositions([*field, FEDAVG], 9)]
    # scaffold prefers uniform weights: scaffold+fedavg-uniform is scaffold. Two objectives do not go together.
    assert found == [("scaffold+fedavgm", 0.1), ("fedavgm+fedavg-uniform", 0.2)]
    assert compositions([SCAFFOLD, Contender("fedprox", 0.1, "fedprox")], 9) == []


# ---- the answer ------------------------------------------------------------------------------------------------------


def test_the_answer_has_its_evidence(raced):
    answer = json.loads((raced.folder / "advise.json").read_text())
    assert answer == json.loads(json.dumps(raced.as_json()))
    assert {"recommended", "difference", "heats", "diagnosis"} <= set(answer)
    gaps = [a["headline"]["value"] - b["headline"]["value"] for a, b in zip(*raced.fresh.values(), strict=True)]
    assert answer["difference"]["values"] == gaps
    assert answer["difference"]["low"] <= answer["difference"]["estimate"] <= answer["difference"]["high"]
    assert raced.clear == (answer["difference"]["low"] > 0)
    assert raced.recommended == (raced.challenger if raced.clear else raced.plain)
    assert str(raced).startswith("Use " if raced.clear else "No clear winner: use FedAvg")


def test_fresh_seeds_are_seen_by_no_heat(raced):
    fresh = {row["seed"] for rows in raced.fresh.values() for row in rows}
    assert min(fresh) >= 1000 > max(heat.heat.seeds for heat in raced.heats)
    assert len({tuple(row["seed"] for row in rows) for rows in raced.fresh.values()}) == 1  # paired


def test_the_command_runs_what_is_recommended(raced):
    words = shlex.split(raced.command)
    assert words[:2] == ["undrift", "run"]
    assert words[words.index("--method") + 1] == raced.recommended.method
    assert float(words[words.index("--lr") + 1]) == raced.recommended.lr
    assert ud.load(raced.run).setup.options.method == raced.recommended.method


def test_a_race_is_repeated_from_its_record(raced, tmp_path):
    asked = read_race(raced.folder)
    assert asked.rounds == raced.budget["rounds"] <= 2000
    again = ud.advise(budget=f"{asked.rounds}r", methods=["scaffold"], out=tmp_path / "again", **SMALL)
    assert hashes(again) == hashes(raced)
    assert str(again).replace(str(tmp_path / "again"), "") == str(raced).replace(str(raced.folder), "").replace(
        raced.cost_sentence, again.cost_sentence
    )


def test_minutes_that_were_cut_are_repeated_from_their_record(tmp_path, monkeypatch):
    ticks = itertools.count(0, 1e6)  # no time is left from the second look on
    monkeypatch.setattr(advisor, "Pace", lambda *given: Pace(*given, clock=lambda: float(next(ticks))))
    settings = {**SMALL, "methods": ["scaffold"]}
    cut = ud.advise(budget="500m", out=tmp_path / "cut", **settings)
    assert cut.budget["repeat"].count("+") == len(cut.heats) + 1  # a heat was left out
    assert read_race(cut.folder).stages == tuple(int(term[:-1]) for term in cut.budget["repeat"].split("+"))
    again = ud.advise(budget=cut.budget["repeat"], out=tmp_path / "again", **settings)
    assert hashes(again) == hashes(cut)
    assert [heat.as_json() for heat in again.heats] == [heat.as_json() for heat in cut.heats]
    assert hashes(carry_out(read_race(cut.folder), cut.folder)) == hashes(cut)


class StopAfter(AdviceCallback):
    """Ctrl-C after the first heat."""

    def on_heat(self, number, heat):
        raise KeyboardInterrupt


def test_ctrl_c_gives_the_answer_so_far_and_resume_the_same_answer(raced, tmp_path):
    folder = tmp_path / "stopped"
    stopped = ud.advise(budget=BUDGET, methods=["scaffold"], out=folder, callback=StopAfter(), **SMALL)
    assert len(stopped.heats) == 1
    assert stopped.recommended.plain
    assert f"--resume {folder}" in str(stopped)
    assert "fresh seeds have not been run" in str(stopped)
    assert hashes(carry_out(read_race(folder), folder)) == hashes(raced)


def test_a_federation_that_is_given_is_raced_as_it_is(tmp_path):
    federation = ud.federate("digits", "iid", clients=3, validation=0.2, seed=3)
    wanted = {"constraints": Constraints(personal="either"), "methods": ["fedavgm"], "out": tmp_path / "given"}
    advice = ud.advise(federation, budget="60r", rounds=2, epochs=1, **wanted)
    assert "compared by what a client uses after it received the model, on the client's own data (L1 Acc(L)" in str(
        advice
    )
    assert "the federation that was given" in str(advice)
    assert {row["seed"] for rows in advice.fresh.values() for row in rows} >= {1000, 1001}


# ---- personal models -------------------------------------------------------------------------------------------------


OTHER_NAMES = {**SMALL, "partition": "iid", "noise": "permute(1.0)"}  # every client calls the classes by other names


@pytest.fixture(scope="module")
def personal(tmp_path_factory, quick):
    """A race with a method that has no global model, where one model for all clients cannot be right."""
    wanted = {"constraints": Constraints(personal="yes"), "methods": ["fedper"]}
    return ud.advise(budget=BUDGET, out=tmp_path_factory.mktemp("race") / "personal", **wanted, **OTHER_NAMES)


def test_where_one_model_cannot_be_right_for_all_a_personal_one_is_recommended(personal):
    assert personal.clear
    assert personal.recommended.method == "fedper"
    assert str(personal).startswith("Use fedper at --lr ")
    assert "Its L1 Acc(L) differs from plain averaging" in str(personal)
    gaps = [
        a["stages"]["L1"]["acc_local"]["mean"] - b["stages"]["L1"]["acc_local"]["mean"]
        for a, b in zip(*personal.fresh.values(), strict=True)
    ]
    assert list(personal.difference.values) == gaps
    assert personal.as_json()["compared_by"] == {"stage": "L1", "data": "own"}
    page = personal.report().read_text()
    assert "validation L1 Acc(L)" in page


def test_a_personal_race_is_scored_on_the_clients_own_validation_data(personal):
    """The mean of a heat is the mean over seeds of the mean over clients, after the rounds of the heat."""
    for heat in personal.heats:
        for standing in heat.standings:
            label, values = safe(standing.contender.label), []
            for seed in range(heat.heat.seeds):
                (run,) = personal.folder.glob(f"*-{label}-seed{seed}")
                found = rows_of(run, OF_CLIENTS, (heat.heat.rounds - 1,))
                assert len(found) == 4
                values.append(sum(value for (value,) in found) / 4)
            assert standing.mean == pytest.approx(sum(values) / len(values))


OF_CLIENTS = "SELECT value FROM metrics WHERE stage='L1' AND data='validation' AND metric='accuracy' AND round=?"


def test_a_personal_race_is_repeated_from_its_record(personal):
    assert read_race(personal.folder).constraints.personal == "yes"
    again = carry_out(read_race(personal.folder), personal.folder)
    assert hashes(again) == hashes(personal)
    assert [heat.as_json() for heat in again.heats] == [heat.as_json() for heat in personal.heats]


def test_without_personal_models_the_global_model_is_compared_as_ever(raced, tmp_path):
    assert raced.as_json()["compared_by"] == {"stage": "G", "data": "global"}
    assert "compared by" not in str(raced)
    runs = RaceRuns(tmp_path, {**SMALL, "lr": 0.05}, Federations(), StudyCallback())
    runs.scored_after = (2, 4)
    assert not {"evaluate_on", "evaluate_at"} & set(runs.task(FEDAVG, 0, 2).settings)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "sentence"), [
    ({"budget": "5r"}, r"a budget of 5 rounds is too small for one race of .* over 4 rounds; give --budget \d+r"),
    ({"budget": "soon"}, "--budget must be minutes or rounds"),
    ({"validation": 0.01}, "too few to choose a method on; it needs at least 20: give --validation"),
    ({"methods": ["fedper"]}, "fedper cannot run here: it has no global model to compare; with --personal yes"),
    ({"methods": ["nothing"]}, "nothing cannot run here: unknown method"),
])  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_a_sentence_and_leaves_nothing(tmp_path, given, sentence):
    settings = {"budget": BUDGET, "out": tmp_path / "race", **SMALL, **given}
    with pytest.raises(BadRequest, match=sentence) as refused:
        ud.advise(**settings)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "race").exists()


def test_a_federation_without_validation_data_is_refused():
    with pytest.raises(BadRequest, match=r"no validation data to choose on; make it with validation=0\.2"):
        ud.advise(ud.federate("digits", "iid", clients=3), budget="100r")


def test_the_command_is_listed():
    assert "advise" in [command.name for command in app.registered_commands]
