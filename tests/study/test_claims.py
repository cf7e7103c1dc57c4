"""The claims that papers make, as terms and comparisons; every outcome can be checked by hand."""

from __future__ import annotations

import json

import pytest

from undrift.cli import command
from undrift.papers import claims
from undrift.papers import run as paper_run
from undrift.papers.claims import parse_claim
from undrift.papers.papers import Column, Preset, TableRow, Value, check_names
from undrift.study.verdict import Looks

G = (Value(),)


def preset(*items, values=G, columns=("x", "y"), rows=("A", "B", "C", "D")) -> Preset:
    found = Preset(
        name="a/b", title="t", source="s", about="", options={"data": "digits", "rounds": 10},
        rows=tuple(TableRow(name, "fedavg") for name in rows), columns=tuple(Column(name) for name in columns),
        values=values, published={}, claims=tuple(parse_claim({"sentence": "it is so", **item}) for item in items), quick={},
    )  # fmt: skip
    check_names(found)
    return found


def runs(numbers, value="G", rounds=10):
    """{(row, column): one number per seed} as rows."""
    return [
        {"row": row, "column": column, "seed": seed, "rounds": rounds, "values": {value: [number, 0.0]}}
        for (row, column), each in numbers.items()
        for seed, number in enumerate(each)
    ]


def decided(claim, numbers, **changes):
    found = preset(claim, **changes)
    return claims.outcome(found, found.claims[0], runs(numbers))


HIGH, LOW, WIDE = [0.9, 0.91, 0.92], [0.5, 0.51, 0.52], [0.2, 0.9, 0.5]


def test_a_claim_is_true_false_or_open():
    above = {"above": ["A", "B"]}
    both = {("A", "x"): HIGH, ("B", "x"): LOW, ("A", "y"): HIGH, ("B", "y"): LOW}
    turned = {**both, ("A", "y"): LOW, ("B", "y"): HIGH}
    assert decided(above, both).outcome == "true"
    assert decided(above, turned).outcome == "false"
    assert decided({**above, "share": 0.5}, turned).outcome == "true"
    assert decided(above, {key: both[key] for key in list(both)[:2]}).outcome == "open"  # y was not run
    assert decided({**above, "in": ["x"]}, {**both, ("A", "x"): WIDE}).outcome == "open"
    assert decided({"below": ["B", "A"]}, both).outcome == "true"
    assert decided(above, {}).outcome == "open"


def test_one_seed_gives_a_hint_and_no_verdict():
    for kind in ("above", "below", "near"):
        found = decided({kind: ["A", "B"], "in": ["x"]}, {("A", "x"): [0.9], ("B", "x"): [0.5]})
        assert (found.outcome, found.why) == ("open", "x +40.00, one seed")


def test_an_outcome_shows_the_differences_behind_it():
    found = decided({"above": ["A", "B"]}, {("A", "x"): [0.9, 0.8], ("B", "x"): [0.5, 0.6]})
    assert found.why == "x +30.00 [−97.06, +157.06]; not run: y"  # 12.706 · 14.142 / √2 = 127.06


def test_near_needs_the_whole_interval():
    near = {"near": ["A", "B"], "in": ["x"], "within": 1.5}
    assert decided(near, {("A", "x"): [0.9, 0.8, 0.7], ("B", "x"): [0.901, 0.8, 0.699]}).outcome == "true"
    assert (
        decided(near, {("A", "x"): [0.9, 0.8, 0.7], ("B", "x"): [0.93, 0.77, 0.7]}).outcome == "open"
    )  # the mean is 0
    assert decided(near, {("A", "x"): HIGH, ("B", "x"): LOW}).outcome == "false"


def test_columns_are_corrected_for_their_number():
    gaps = [0.010, 0.013, 0.018]  # p = 0.029: enough alone, not as the best of three
    numbers = {("A", "x"): [0.5 + gap for gap in gaps], ("B", "x"): [0.5] * 3}
    assert decided({"above": ["A", "B"], "in": ["x"]}, numbers).outcome == "true"
    more = {key: [0.5, 0.52, 0.51] for key in ((r, c) for r in "AB" for c in ("y", "z"))}
    more["A", "y"], more["A", "z"] = [0.51, 0.5, 0.52], [0.52, 0.51, 0.5]
    three = decided({"above": ["A", "B"], "share": 0.3}, {**numbers, **more}, columns=("x", "y", "z"))
    assert three.outcome == "open"


def test_a_column_against_a_column():
    claim = {"above": [{"row": "A", "column": "x"}, {"row": "A", "column": "y"}]}
    found = decided(claim, {("A", "x"): HIGH, ("A", "y"): LOW})
    assert found.outcome == "true"
    assert found.why.startswith("A in x against A in y +40.00")


def test_the_gap_of_one_column_against_that_of_another():
    gap = [{"row": "A", "minus": "B", "column": c} for c in ("x", "y")]
    numbers = {("A", "x"): HIGH, ("B", "x"): LOW, ("A", "y"): HIGH, ("B", "y"): [0.8, 0.81, 0.82]}
    assert decided({"above": gap}, numbers).outcome == "true"  # 40 points against 10
    assert decided({"above": gap[::-1]}, numbers).outcome == "false"


def test_stages_and_sums_of_values():
    values = (Value("L1", stage="L1"), Value("L2", stage="L2"))
    rows = [
        {"row": "A", "column": "x", "seed": s, "values": {"L1": [0.9 + s / 100, 0], "L2": [0.5 + s / 50, 0]}}
        for s in range(3)
    ] + [{"row": "B", "column": "x", "seed": s, "values": {"L1": [0.7, 0], "L2": [0.5, 0]}} for s in range(3)]
    stages = preset({"above": [{"row": "A", "value": "L1"}, {"row": "A", "value": "L2"}], "in": ["x"]}, values=values)
    assert claims.outcome(stages, stages.claims[0], rows).outcome == "true"
    total = preset({"above": [{"row": name, "value": ["L1", "L2"]} for name in "AB"], "in": ["x"]}, values=values)
    found = claims.outcome(total, total.claims[0], rows)
    # Acc = L1 + L2: (140, 143, 146) − 120 = (20, 23, 26): mean 23, half width 4.3027 · 3/√3 = 7.45
    assert found.why == "x +23.00 [+15.55, +30.45]"


def test_every_host_is_compared_with_itself():
    claim = {"above": [["B", "A"], ["D", "C"]], "in": ["x"]}
    numbers = {("A", "x"): LOW, ("B", "x"): HIGH, ("C", "x"): LOW, ("D", "x"): HIGH}
    assert decided(claim, numbers).outcome == "true"
    assert decided(claim, {**numbers, ("D", "x"): WIDE}).outcome == "open"
    gain = {"above": [[{"row": "B", "minus": "A"}, {"row": "D", "minus": "C"}]], "in": ["x"]}
    assert decided(gain, {**numbers, ("D", "x"): [0.6, 0.61, 0.62]}).outcome == "true"


def test_it_rises_then_falls():
    claim = {"all": [{"rises": ["A", "B"]}, {"falls": ["B", "C", "D"]}], "in": ["x"]}
    curve = {("A", "x"): LOW, ("B", "x"): HIGH, ("C", "x"): [0.7, 0.71, 0.72], ("D", "x"): LOW}
    assert decided(claim, curve).outcome == "true"
    assert decided(claim, {**curve, ("D", "x"): HIGH}).outcome == "false"


def test_it_lags_early_and_overtakes_later():
    values = (Value("early", window=(0.0, 0.2)), Value("late", window=0.2))
    item = {"all": [{"below": ["A", "B"], "value": "early"}, {"above": ["A", "B"], "value": "late"}], "in": ["x"]}
    found = preset(item, values=values)
    numbers = {"A": (0.3, 0.9), "B": (0.5, 0.7)}
    rows = [
        {"row": row, "column": "x", "seed": s, "values": {"early": [early + s / 100, 0], "late": [late, 0]}}
        for row, (early, late) in numbers.items()
        for s in range(3)
    ]
    assert claims.outcome(found, found.claims[0], rows).outcome == "true"


def test_runs_of_different_lengths_are_named():
    rows = runs({("A", "x"): [0.9]}, rounds=100) + runs({("B", "x"): [0.5]}, rounds=200)
    found = preset({"above": ["A", "B"], "in": ["x"]})
    assert claims.outcome(found, found.claims[0], rows).why == "x (100 and 200 rounds) +40.00, one seed"


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"above": ["A", "Z"]}, "Z"),
        ({"above": [{"row": "A", "column": "q"}, "B"]}, "q"),
        ({"above": ["A", "B"], "value": "no"}, "no"),
        ({"above": ["A", "B"], "near": ["A", "B"]}, "exactly one"),
        ({}, "exactly one"),
        ({"above": ["A", "B", "C"]}, "two terms"),
    ],
)
def test_a_claim_about_what_is_not_there_is_refused(item, why):
    with pytest.raises(ValueError, match=why):
        preset(item)


def test_a_claim_is_settled_if_only_what_was_not_run_is_open():
    numbers = {("A", "x"): HIGH, ("B", "x"): LOW}
    assert decided({"above": ["A", "B"]}, numbers).settled
    assert not decided({"above": ["A", "B"]}, {**numbers, ("A", "x"): WIDE}).settled


def test_paper_run_adds_seeds_until_it_is_clear_and_keeps_the_looks(tmp_path, capsys):
    results = tmp_path / "results.jsonl"
    small = (
        "paper",
        "run",
        "fednolowe/table3",
        "--rounds",
        "1",
        "--column",
        "10 %",
        "--row",
        "FedNolowe",
        "--row",
        "FedAvg, uniform",
    )
    arguments = [*small, "--results", str(results), "--json", "--quiet", "--seeds", "2"]
    assert command([*arguments, "--out", str(tmp_path / "a"), "--until-clear", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    seeds = {row["seed"] for row in found["rows"]}
    assert {line["seed"] for line in lines} == seeds
    assert len(lines) == 2 * len(seeds)
    assert 2 <= len(seeds) <= 4
    assert all(line["until_clear"] == [2, 4] for line in lines)
    assert claims.looks_of(lines) == Looks(2, 4)
    outcomes = {claim["outcome"] for claim in found["claims"]}
    assert len(seeds) == 4 or outcomes  # it stopped because nothing that was run is open
    assert command([*arguments, "--out", str(tmp_path / "b"), "--until-clear", "5"]) == 2
    assert "made with --seeds 2 --until-clear 4" in capsys.readouterr().err
    assert command([*arguments, "--out", str(tmp_path / "c"), "--until-clear", "2"]) == 2
    assert "not more than the first 2" in capsys.readouterr().err


def test_it_stops_when_every_claim_is_decided(monkeypatch, tmp_path):
    found, asked = preset({"above": ["A", "B"], "in": ["x"]}), []
    numbers = {("A", "x"): [0.5, 0.9, *[0.9 + s / 1e4 for s in range(8)]], ("B", "x"): [0.45, 0.5, *[0.5] * 8]}

    def run(scaled, *_):
        asked.append(len(scaled.seeds))
        rows = runs({key: each[: len(scaled.seeds)] for key, each in numbers.items()})
        return [{**row, "until_clear": [2, 10]} for row in rows], 1.0

    monkeypatch.setattr(paper_run, "run", run)
    from undrift.papers.scales import Scaled

    scaled = lambda n: Scaled(found, "paper", {}, found.rows, found.columns, tuple((s, s) for s in range(n)), ())  # noqa: E731
    _, rows, seconds = paper_run.run_until_clear(scaled, Looks(2, 10), tmp_path)
    assert asked == list(range(2, len(asked) + 2))
    assert claims.outcomes(found, rows)[0].outcome == "true"
    assert claims.outcomes(found, [r for r in rows if r["seed"] < asked[-1] - 1])[0].outcome == "open"
    assert seconds == len(asked) < 9


def test_constants_shares_and_ranges_by_hand():
    numbers = {("A", "x"): [0.2, 0.3], ("B", "x"): [0.5, 0.6], ("C", "x"): [0.9, 1.1]}
    one = {"in": ["x"]}
    assert (
        decided({"above": ["A", 10], **one}, numbers).why == "x +15.00 [−48.53, +78.53]"
    )  # 10 and 20; t = 12.706, s = 5
    assert decided({"above": ["B", 10], **one}, {("B", "x"): HIGH}).outcome == "true"
    assert decided({"near": [{"row": "A", "times": 2}, "B"], **one, "within": 30}, numbers).verdicts[0].question.differences == [
        pytest.approx(-10), pytest.approx(0),
    ]  # fmt: skip
    spread = decided({"below": [{"range": ["A", "B", "C"]}, 75], **one}, numbers).verdicts[0].question
    assert spread.differences == [pytest.approx(-5), pytest.approx(5)]  # 70 and 80
    assert decided({"below": [{"range": ["A", "D"]}, 75], **one}, numbers).why == "not run"
    assert (
        parse_claim({"sentence": "s", "above": [{"range": ["A", "B"]}, 1]}).parts[0].terms[0].label == "range of A, B"
    )
