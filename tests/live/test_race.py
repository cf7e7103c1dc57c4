"""The live page of a race: contenders fill in, and say what became of them; it is finished when its fresh seeds have run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from undrift.live.index import Index
from undrift.live.runs_view import study_state
from undrift.live.study_view import sections
from undrift.report.page import headed, inside
from undrift.store.record import Record

spec = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)

STANDING = {
    "axis": "plain",
    "reason": "a control",
    "evidence": "untested",
    "gap": 0.0,
    "low": None,
    "high": None,
    "mean": 0.6,
}
ANSWER = {
    "recommended": None, "difference": None, "headline": {"name": "accuracy", "better": "higher", "title": "Acc", "percent": True},
    "heats": [{"rounds": 5, "seeds": 1, "keep": 3, "alpha": 0.01, "standings": [
        {**STANDING, "method": "fedavg", "lr": 0.1, "outcome": "leader"},
        {**STANDING, "method": "feddyn(alpha=0.1)", "lr": 0.1, "outcome": "budget"},
    ]}],
    "diagnosis": {"axes": [], "findings": []}, "left_out": [], "would_change": [], "budget": {}, "options": {"data": "digits"},
    "sentences": ["Nothing speaks against plain averaging yet."], "text": "", "folder": "race", "stopped": "",
}  # fmt: skip


def made_race(folder: Path) -> Path:
    """Three contenders, of which one left."""
    made.made_run(folder / "000-fedavg_lr=0.1-seed0", rounds=10, done=5)
    made.made_run(folder / "001-feddyn_alpha=0.1__lr=0.1-seed0", "feddyn(alpha=0.1)", rounds=10, done=5)
    made.made_run(folder / "002-scaffold_lr=0.1-seed0", "scaffold", rounds=10, done=2)
    (folder / "advise.toml").write_text('budget = "3m"\n')
    (folder / "advise.json").write_text(json.dumps(ANSWER))
    return folder


@pytest.fixture
def race(tmp_path):
    return made_race(tmp_path / "runs" / "race")


def shown(race):
    index = Index([race.parent])
    index.poll()
    study = index.studies["race"]
    return study, {headed(section)[0]: inside(*headed(section)[:2]) for section in sections(index, study)}


def test_every_contender_has_a_line_that_says_what_became_of_it(race):
    study, page = shown(race)
    assert study_state(study) == "stopped"
    assert "undrift advise --resume" in page["about"]
    lines = page["filling"].split("<tr")
    by_label = {label: next(line for line in lines if label in line) for label in ("fedavg", "feddyn", "scaffold")}
    assert "leads" in by_label["fedavg"]
    assert "dropped for budget (heat 1)" in by_label["feddyn"]
    assert "open" in by_label["scaffold"]
    assert "Nothing speaks against plain averaging yet." in page["answer"]


def test_a_race_is_finished_when_its_fresh_seeds_have_run_though_runs_of_it_paused(race):
    gap = {
        "challenger": "a",
        "plain": "b",
        "estimate": 0.1,
        "low": 0.0,
        "high": 0.2,
        "seeds": 2,
        "outcome": "open",
        "values": [0.0, 0.2],
    }
    (race / "advise.json").write_text(json.dumps({**ANSWER, "difference": gap}))
    assert study_state(shown(race)[0]) == "finished"


def test_an_answer_that_cannot_be_read_is_none_yet(race):
    (race / "advise.json").write_text("{")
    _, page = shown(race)
    assert set(page) == {"about", "filling", "race-curves"}


def test_fresh_seeds_are_added_to_the_difference_one_by_one(race):
    """Eight differences of 1 to 8 points: the interval is that of the ranks, which needs six seeds; the estimate is their mean."""
    for seed in range(8):
        for number, method, rounds in ((0, "fedavg_lr=0.1", 10), (1, "feddyn_alpha=0.1__lr=0.1", 11 + seed)):
            run = race / f"{number:03d}-{method}-seed{1000 + seed}"
            made.made_run(run, method.partition("_")[0], rounds=rounds, done=rounds)  # a point a round
    plain = {"method": "fedavg", "lr": 0.1, "command": "undrift run"}
    (race / "advise.json").write_text(json.dumps({**ANSWER, "recommended": plain}))
    index = Index([race.parent])
    index.poll()
    found = {section[0]: section[1] for section in sections(index, index.studies["race"])}
    (line,) = found["fresh"].data
    assert line.name == "feddyn(alpha=0.1) lr=0.1 − fedavg lr=0.1"
    assert list(line.y) == pytest.approx([1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5])
    assert list(line.error_y.array[:5]) == [None] * 5
    assert list(line.error_y.arrayminus[5:]) == pytest.approx([3.5 - 1, 4 - 2, 4.5 - 2])
    assert found["filling"].rows[0] == [
        "contender", "what became of it", "seed 0", *(f"fresh seed {number}" for number in range(1, 9)),
    ]  # fmt: skip
    assert [line[0] for line in found["filling"].rows[1:]] == [
        "fedavg lr=0.1",
        "feddyn(alpha=0.1) lr=0.1",
        "scaffold lr=?",
    ]
    assert [line.name for line in found["race-curves"].data if line.showlegend is not False] == [
        "fedavg lr=0.1",
        "scaffold lr=?",
    ]


def test_a_race_of_personal_models_shows_what_clients_use(race):
    """Runs with a global model too: what counts is the mean over clients on their own data, on validation data in the curves."""
    for path in race.glob("*-seed0"):
        record = Record(path / "run.sqlite")
        record.db.execute(
            "UPDATE metrics SET value = 0.25 * (1 + client) WHERE stage = 'L1' AND round = 4"
        )  # 50 % in the mean
        record.db.execute("INSERT INTO metrics VALUES (4, 0, 'L1', 'validation', 'accuracy', 0.75)")
        record.db.commit()
        record.close()
    (race / "advise.json").write_text(json.dumps({**ANSWER, "compared_by": {"stage": "L1", "data": "own"}}))
    index = Index([race.parent])
    index.poll()
    found = {section[0]: section[1] for section in sections(index, index.studies["race"])}
    lines = {line[0]: str(line[2]) for line in found["filling"].rows[1:]}
    assert "50.00 (5/10)" in lines["fedavg lr=0.1"]
    assert "51.00 (2/10)" in lines["scaffold lr=?"]  # its second round is the last that was evaluated
    assert [list(line.y) for line in found["race-curves"].data if line.name == "fedavg lr=0.1"] == [[0.75]]
    assert found["race-curves"].layout.title.text.startswith("L1: on receipt, own validation data")
    assert found["heats"].layout.yaxis.title.text == "validation L1 Acc(L)"


def test_who_stays_to_the_end_does_not_go_on(race):
    standing = {**STANDING, "method": "scaffold", "lr": 0.1, "outcome": "kept"}
    heat = {**ANSWER["heats"][0], "standings": [*ANSWER["heats"][0]["standings"], standing]}
    (race / "advise.json").write_text(json.dumps({**ANSWER, "heats": [heat]}))
    assert "goes on" in shown(race)[1]["filling"]
    made.made_run(race / "000-fedavg_lr=0.1-seed1000", rounds=10, done=5)
    assert "not distinguished from the leader" in shown(race)[1]["filling"]


def test_gaps_to_the_leader_are_drawn_heat_by_heat_and_not_where_they_say_nothing(race):
    lead, other = ANSWER["heats"][0]["standings"]
    one = {**other, "outcome": "kept", "gap": 0.08, "low": -0.4, "high": 0.56}  # 96 points wide: of two seeds
    two = {**one, "gap": 0.06, "low": -0.02, "high": 0.14}
    heats = [{**ANSWER["heats"][0], "standings": [lead, gap]} for gap in (one, two)]
    (race / "advise.json").write_text(json.dumps({**ANSWER, "heats": heats}))
    index = Index([race.parent])
    index.poll()
    (line,) = {section[0]: section[1] for section in sections(index, index.studies["race"])}["gaps"].data
    assert (line.name, list(line.y)) == ("feddyn(alpha=0.1) lr=0.1", pytest.approx([8, 6]))
    assert list(line.error_y.array) == [None, pytest.approx(8)]
