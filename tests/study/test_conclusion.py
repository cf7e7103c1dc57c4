"""The sentence of a comparison, against the numbers behind it, and seeds that are added until the first place is clear."""

from __future__ import annotations

import json

import numpy as np
import pytest

import undrift as ud
from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.study import compare as study_compare
from undrift.study.conclusion import conclusion
from undrift.study.verdict import Looks


def rows(numbers):
    """{method: one accuracy per seed} as rows."""
    return [
        {"method": method, "seed": seed, "accuracy": number}
        for method, each in numbers.items()
        for seed, number in enumerate(each)
    ]


def test_who_is_ahead_and_who_cannot_be_distinguished():
    found = conclusion(rows({"c": [0.5, 0.51, 0.52], "a": [0.9, 0.911, 0.92], "b": [0.8, 0.99, 0.85]}))
    assert found.methods == ("a", "b", "c")
    assert found.ahead("a") == ["c"]
    assert found.rivals == ["b"]
    assert not found.clear
    assert found.sentence.startswith(
        "By G at three seeds (95 % intervals, corrected for 3 pairs) a and b are ahead of c. "
        "a has the highest mean and cannot be distinguished from b."
    )
    assert "more seeds would decide the first place (hardest: b, +3.0 [" in found.sentence


def test_of_many_methods_at_one_seed_only_the_pairs_with_the_first_are_looked_at(monkeypatch):
    many = rows({f"m{number}": [number / 100] for number in range(80)})
    found = conclusion(many)
    monkeypatch.setattr("undrift.study.conclusion.ALL_PAIRS", 80)
    assert (len(found.pairs), len(conclusion(many).pairs)) == (79, 3160)
    assert (found.sentence, found.rivals, found.clear) == (conclusion(many).sentence, list(found.methods[1:]), False)


def test_one_seed_concludes_nothing():
    found = conclusion(rows({"a": [0.9], "b": [0.859]}))
    assert found.sentence == (
        "Nothing can be concluded from one seed: a has the highest G (+4.1, one seed, against b), which may be chance. "
        "Add --seeds 3, or --until-clear 10."
    )
    assert not found.clear


def test_equal_methods_are_named_and_do_not_keep_the_first_place_open():
    found = conclusion(rows({"a": [0.9, 0.91, 0.93], "a2": [0.9, 0.91, 0.93], "b": [0.5, 0.505, 0.53]}))
    assert found.clear
    assert "a and a2 are ahead of b" in found.sentence
    assert "The same numbers at every seed: a and a2." in found.sentence


def test_all_that_can_be_said_of_methods_that_are_alike():
    draw = np.random.default_rng(0)
    found = conclusion(rows({name: draw.normal(0.8, 0.02, 3) for name in "abc"}))
    assert "no method can be distinguished from another." in found.sentence


def test_what_the_sentence_says_is_true():
    """Every pair that is called ahead has an interval without zero, and the seeds it asks for do decide."""
    draw = np.random.default_rng(1)
    for _ in range(20):
        numbers = {f"m{i}": draw.normal(0.8 + 0.03 * i, 0.02, 4) for i in range(4)}
        found = conclusion(rows(numbers))
        for (a, b), verdict in found.pairs.items():
            assert (b in found.ahead(a)) == (verdict.low > 0)
            assert (a in found.ahead(b)) == (verdict.high < 0)
            assert np.mean(numbers[a]) >= np.mean(numbers[b])


def test_a_method_without_a_result_is_left_out():
    some = [*rows({"a": [0.9, 0.91], "b": [0.5, 0.52]}), {"method": "local", "seed": 0, "accuracy": None}]
    assert conclusion(some).methods == ("a", "b")
    assert "nothing to compare" in conclusion(some[:1]).sentence


def test_repeated_looks_are_named_and_are_stricter():
    numbers = {"a": [0.9, 0.91, 0.92], "b": [0.85, 0.851, 0.85]}
    once, often = conclusion(rows(numbers)), conclusion(rows(numbers), looks=Looks(3, 10))
    assert once.clear
    assert not often.clear
    assert "looks at 3 to 10 seeds" in often.sentence


SMALL = {"clients": 4, "rounds": 1, "data": "digits", "model": "mlp(4)"}


def test_compare_adds_seeds_until_the_first_place_is_clear(tmp_path, monkeypatch):
    numbers = {"fedavg": [0.5, 0.9, 0.9, 0.91, 0.9, 0.9, 0.9], "bound": [0.45, 0.5, 0.5, 0.52, 0.51, 0.5, 0.5]}
    asked = []

    def run(comparison, folder, *_):
        asked.append(comparison.seeds)
        return study_compare.Compared(
            rows({m: each[: len(comparison.seeds)] for m, each in numbers.items()}), folder, 1.0
        )

    monkeypatch.setattr(study_compare, "run_comparison", run)
    done = ud.compare(["fedavg", "bound"], until_clear=7, out=tmp_path / "a", **SMALL)
    assert [len(seeds) for seeds in asked] == list(range(2, len(asked) + 2))
    assert asked[-1] == tuple((s, s) for s in range(len(asked) + 1))
    assert done.conclusion.clear == (len(asked) < 6)
    assert done.seconds == len(asked)
    ud.compare(["fedavg", "bound"], until_clear=7, repeat=3, out=tmp_path / "b", **SMALL)
    assert {data_seed for _, data_seed in asked[-1]} == {0}


def test_the_looks_are_kept_in_the_folder_and_on_the_page(tmp_path, capsys):
    arguments = [
        "compare",
        "fedavg",
        "fedavg-uniform",
        "--clients",
        "4",
        "--rounds",
        "1",
        "--model",
        "mlp(4)",
        "--until-clear",
        "3",
    ]
    assert command([*arguments, "--out", str(tmp_path / "c"), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "looks at 2 to 3 seeds" in found["conclusion"]
    page = (tmp_path / "c" / "index.html").read_text()
    body = page[page.index("<body>") :]
    assert body.index("looks at 2 to 3 seeds") < body.index("id='table'")
    assert "--seeds 2 --until-clear 3" in body
    assert command(["compare", "--resume", str(tmp_path / "c"), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conclusion"] == found["conclusion"]
    assert command(["compare", "--resume", str(tmp_path / "c"), "--seeds", "2", "--until-clear", "9", "--quiet"]) == 2
    assert "was looked at with --seeds 2 --until-clear 3" in capsys.readouterr().err


def test_too_few_seeds_to_add_are_refused():
    with pytest.raises(BadRequest, match="3 is not more than the first 3"):
        ud.compare(["fedavg"], seeds=3, until_clear=3, **SMALL)
