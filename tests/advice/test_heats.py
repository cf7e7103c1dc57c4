"""Heats: who leaves and why, by hand; and the error rate of whole races that are simulated with numbers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from undrift.advice.answer import Advice
from undrift.advice.budget import COMPOSITIONS, Heat, best_fitting, plans, read_budget, staged
from undrift.advice.findings import Diagnosis
from undrift.advice.heats import PLAIN_RATES, Contender, Race, judged
from undrift.advice.pace import Pace
from undrift.core.errors import BadRequest
from undrift.core.headline import Headline
from undrift.study.verdict import ALPHA, Looks

RMSE = Headline("rmse", "lower", "RMSE", False)


def named(name, lr=0.1):
    return Contender(name, lr, name)


PLAIN, A, B, C = named("fedavg"), named("a"), named("b"), named("c")


def outcomes(result):
    return {one.contender.label: one.outcome for one in result.standings}


# ---- a heat, by hand -------------------------------------------------------------------------------------------------


def test_the_interval_drops_who_is_behind_and_room_drops_the_rest():
    # a − b is 0.3 at every seed but for 0.001: behind at any level. a − c is noise: only the room decides.
    scores = {A: [0.9, 0.8, 0.85], B: [0.6, 0.5, 0.551], C: [0.88, 0.82, 0.83], PLAIN: [0.2, 0.2, 0.2]}
    assert outcomes(judged(Heat(5, 3, 2), list(scores), scores, ALPHA)) == {
        "a lr=0.1": "leader", "c lr=0.1": "kept", "b lr=0.1": "behind", "fedavg lr=0.1": "kept",
    }  # fmt: skip
    assert outcomes(judged(Heat(5, 3, 1), list(scores), scores, ALPHA))["c lr=0.1"] == "budget"


def test_the_interval_is_students_at_a_share_for_every_pair():
    # Differences 0.1 and 0.2: mean 0.15, s/√2 = 0.05, t(1 − 0.05/2/2, 1) = 25.4517 for two pairs.
    scores = {A: [0.9, 0.9], B: [0.8, 0.7], C: [0.0, 0.1]}
    standing = judged(Heat(5, 2, 3), list(scores), scores, ALPHA).standings[1]
    assert (standing.gap, standing.low, standing.high) == pytest.approx(
        (0.15, 0.15 - 1.27259, 0.15 + 1.27259), rel=1e-4
    )


def test_one_seed_never_says_that_somebody_is_behind():
    scores = {A: [0.9], B: [0.1], PLAIN: [0.0]}
    assert set(outcomes(judged(Heat(5, 1, 1), list(scores), scores, ALPHA)).values()) == {"leader", "kept", "budget"}


def test_of_the_rates_of_a_method_one_goes_on_and_of_plain_averaging_two():
    field = [named(name, lr) for name in ("fedavg", "a") for lr in (0.01, 0.1, 1.0)]
    scores = {one: [-abs(np.log10(one.lr) + 1)] for one in field}
    going = judged(Heat(5, 1, 9), field, scores, ALPHA).going_on
    assert [one.lr for one in going if one.name == "a"] == [0.1]
    assert sum(one.plain for one in going) == PLAIN_RATES


def test_a_run_that_failed_drops_its_contender_and_never_leads():
    scores = {A: [0.9, -np.inf], B: [0.1, 0.1]}
    assert outcomes(judged(Heat(5, 2, 2), list(scores), scores, ALPHA)) == {"b lr=0.1": "leader", "a lr=0.1": "failed"}


def test_a_lower_headline_is_shown_as_it_was_recorded():
    scores = {A: [-50.0, -52.0], B: [-60.0, -61.0]}
    standings = judged(Heat(5, 2, 2), list(scores), scores, ALPHA, RMSE.sign).standings
    assert [(one.contender.method, one.mean) for one in standings] == [("a", 51.0), ("b", 60.5)]


@pytest.mark.parametrize("heats", [1, 2, 4])
def test_the_heats_spend_five_percent_together(heats):
    assert sum(Looks(1, heats).alpha(number + 1) for number in range(heats)) == pytest.approx(ALPHA)


# ---- budgets and plans -----------------------------------------------------------------------------------------------


def test_budgets_are_read():
    assert (read_budget("90s").seconds, read_budget("1.5h").seconds, read_budget("2000r").rounds) == (90, 5400, 2000)
    for text in ("", "10", "m", "-1m", "0m", "1.5r", "ten minutes"):
        with pytest.raises(BadRequest, match="--budget"):
            read_budget(text)


class Counted:
    """Scores that are drawn, and a count of the rounds that they cost."""

    def __init__(self, score, seed=0):
        self.score, self.draw, self.done = score, np.random.default_rng(seed), {}
        self.by_seed = self.draw.normal(0, 0.03, 100)  # what all contenders share at a seed

    def scores(self, asked, seeds, rounds):
        for one in asked:
            for seed in range(seeds):
                self.done[one, seed] = max(rounds, self.done.get((one, seed), 0))
        return {
            one: [self.score(one) + self.by_seed[s] + self.draw.normal(0, 0.02) for s in range(seeds)] for one in asked
        }

    @property
    def rounds(self):
        return sum(self.done.values())


@pytest.mark.parametrize("methods", [2, 3, 6, 9, 35])
def test_a_plan_is_an_upper_bound_of_its_cost_and_the_next_plan_costs_more(methods):
    field = [named(name, lr) for name in ["fedavg", *map(str, range(methods - 1))] for lr in (0.1, 0.2, 0.3)]
    offered = plans(methods, len(field), 20, PLAIN_RATES)
    costs = [plan.cost() for plan in offered]
    assert costs == sorted(set(costs))
    assert best_fitting(offered, lambda plan: plan.cost() <= costs[3]) == offered[3]
    assert best_fitting(offered, lambda plan: plan.cost() < costs[0]) is None
    for plan in offered[:4]:
        composed = [named(f"composed {number}") for number in range(COMPOSITIONS)]
        race, runs = Race(plan, field, lambda survivors: composed), Counted(lambda one: 0.5)  # noqa: B023
        race.run(runs)
        assert plan.cost() - 2 * plan.fresh * 20 - 20 * plan.heats[-1].seeds <= runs.rounds
        assert runs.rounds + 2 * plan.fresh * 20 <= plan.cost()


# ---- minutes ---------------------------------------------------------------------------------------------------------


class Slow(Counted):
    """Scores by method and seed, and a clock that goes on by so many seconds per round, more once the machine is busy."""

    def __init__(self, seconds, busy_after=10**9, factor=1.0):
        super().__init__(lambda one: 0.5)
        self.seconds, self.busy_after, self.factor, self.now = seconds, busy_after, factor, 0.0
        self.noticed = 0.0  # when the work ended in which the machine got busy

    def scores(self, asked, seeds, rounds):
        before = self.rounds
        super().scores(asked, seeds, rounds)
        busy = max(0, self.rounds - max(before, self.busy_after))
        self.now += self.seconds * (self.rounds - before + (self.factor - 1) * busy)
        self.noticed = self.noticed or (self.now if busy else 0.0)
        return {
            one: [0.5 + 0.01 * ((hash_of(one.label) + 7 * s) % 13) for s in range(seeds)] for one in asked
        }  # fmt: skip

    def fresh(self, asked, seeds):
        return self.scores([named(f"fresh {one.label}") for one in asked], seeds, 20)


def hash_of(text):
    return sum(map(ord, text))


FIELD = [named(name, lr) for name in ("fedavg", *"abcdefg") for lr in (0.01, 0.1, 1.0)]
OFFERED = plans(8, len(FIELD), 20, PLAIN_RATES)


def timed(runs, minutes, plan=OFFERED[6]):
    """A race of so many minutes; its plan when it ended, and its standings."""
    race, pace = Race(plan, FIELD), Pace(60 * minutes, OFFERED, lambda: runs.rounds, 0.0, lambda: runs.now)
    race.run(runs, pace=pace)
    race.plan = pace.fresh(race.plan, lambda seeds: runs.fresh([race.challenger, race.plain], seeds))
    runs.fresh([race.challenger, race.plain], race.plan.fresh)
    return race


def test_a_race_as_fast_as_expected_keeps_its_plan():
    runs = Slow(0.1)
    assert timed(runs, OFFERED[6].cost() * 0.1 / 60).plan == OFFERED[6]


@pytest.mark.parametrize("busy_after", [100, 300, 1000])
@pytest.mark.parametrize("factor", [2, 4])
def test_on_a_machine_that_gets_busier_only_what_fits_is_started_and_the_fewest_fresh_seeds(busy_after, factor):
    runs, seconds = Slow(0.1, busy_after, factor), OFFERED[6].cost() * 0.1
    race = timed(runs, seconds / 60)
    fewest = factor * 0.1 * 2 * OFFERED[0].fresh * 20
    assert race.plan.cost() < OFFERED[6].cost()
    assert race.plan.fresh >= OFFERED[0].fresh
    assert runs.now <= max(seconds, runs.noticed) + fewest


def test_seeds_that_were_cut_come_back_when_the_machine_is_quiet_again():
    runs = Slow(0.1)
    pace = Pace(OFFERED[6].cost() * 0.1, OFFERED, lambda: runs.rounds, 0.0, lambda: runs.now)
    pace.speed = 0.3  # of a piece of work that others disturbed
    cut = pace.cut(OFFERED[6], 0)
    assert cut.cost() < OFFERED[6].cost()
    pace.speed = 0.1
    assert pace.cut(cut, 0) == OFFERED[6]


def test_with_no_time_left_the_other_heats_are_left_out_and_the_fewest_fresh_seeds_decide():
    race = timed(Slow(0.1, 0, 100), 1)
    assert [heat.seeds for heat in race.plan.heats] == [1] + [0] * (len(race.plan.heats) - 1)
    assert race.plan.fresh == OFFERED[0].fresh
    assert len(race.heats) == 1


@pytest.mark.parametrize(("busy_after", "factor"), [(0, 100), (300, 4), (1000, 2), (2000, 4), (10**9, 1)])
def test_the_record_of_minutes_repeats_the_race(busy_after, factor):
    race = timed(Slow(0.1, busy_after, factor), OFFERED[6].cost() * 0.1 / 60)
    given = read_budget(race.plan.spelled(OFFERED))
    plan = staged(OFFERED[0], given.stages) if given.stages else best_fitting(
        OFFERED, lambda one: one.cost() <= given.rounds)  # fmt: skip
    assert (plan.heats, plan.fresh) == (race.plan.heats, race.plan.fresh)
    assert given.rounds == race.plan.cost()
    again = Race(plan, FIELD)
    again.run(Slow(5.0))
    assert again.heats == race.heats
    assert (again.challenger, again.plain) == (race.challenger, race.plain)


@pytest.mark.parametrize("plan", OFFERED)
def test_every_plan_is_found_again_from_the_rounds_of_its_stages(plan):
    assert staged(OFFERED[3], plan.stages()).heats == plan.heats


def test_a_record_with_another_number_of_heats_is_refused():
    with pytest.raises(BadRequest, match=r"--budget 10r\+20r has 2 terms, and this race has 3"):
        staged(OFFERED[0], (10, 20))


# ---- races that are simulated ----------------------------------------------------------------------------------------


def finished(score, seed, headline=None):
    """A race of eight methods at three rates whose numbers are drawn, and its answer on fresh seeds."""
    headline = headline or Headline()
    field = [named(name, lr) for name in ("fedavg", *"abcdefg") for lr in (0.01, 0.1, 1.0)]
    plan = plans(8, len(field), 20, PLAIN_RATES)[2]
    race, runs = Race(plan, field), Counted(score, seed)
    race.run(runs, sign=headline.sign)
    fresh = runs.scores([race.challenger, race.plain], plan.fresh, 20)
    rows = {one.label: [{"headline": {"value": headline.sign * value}} for value in fresh[one]] for one in fresh}
    return race, Advice(
        Path("race"), {}, Diagnosis(()), tuple(race.heats), race.plain, race.challenger, rows, headline
    )  # fmt: skip


def test_where_all_contenders_are_alike_at_most_seven_percent_of_200_races_have_a_winner():
    winners = sum(finished(lambda one: 0.5, seed)[1].clear for seed in range(200))
    assert winners <= 14


def test_a_method_that_is_better_is_found_and_recommended_at_its_best_rate():
    def score(one):
        return 0.5 - 0.1 * abs(np.log10(one.lr) + 1) + 0.08 * (one.name == "c")

    found = [finished(score, seed)[1] for seed in range(50)]
    assert sum(advice.recommended.label == "c lr=0.1" for advice in found) >= 48


def test_a_method_that_is_worse_than_plain_averaging_is_not_recommended():
    found = [finished(lambda one: 0.5 + 0.05 * one.plain, seed)[1] for seed in range(50)]
    assert not any(advice.clear for advice in found)
    assert all(advice.recommended.plain for advice in found)
    assert sum(advice.difference.outcome == "false" for advice in found) > 40


def test_the_best_contender_is_dropped_as_behind_in_at_most_five_percent_of_races():
    def dropped(seed):
        race, _ = finished(lambda one: 0.5 + 0.001 * (one.name == "c" and one.lr == 0.1), seed)
        return any(
            s.outcome == "behind" and s.contender.label == "c lr=0.1" for heat in race.heats for s in heat.standings
        )

    assert sum(dropped(seed) for seed in range(200)) <= 10


def test_a_lower_headline_ranks_the_right_way_round():
    _, advice = finished(lambda one: 0.5 + 0.2 * (one.name == "c"), 0, RMSE)
    assert advice.recommended.name == "c"
    assert advice.difference.high < 0
    assert "c at --lr" in advice.verdict_sentence
