"""A sketch tells what the site agrees to, and the federation made from sketches has their shape."""

from __future__ import annotations

import json

import numpy as np
import pytest

import undrift as ud
from undrift.advice import start
from undrift.advice.shortlist import Candidate, Shortlist
from undrift.advice.sketch import Policy, Sketch, federation_like, like, read_sketches, rounded, sketch, write_sketch
from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.report.label_distribution import changed


def site(clients: int = 2, noise: str | None = None, partition: str = "iid", seed: int = 0):
    return ud.federate("digits", partition, clients, noise=noise, seed=seed)


def told(samples: int, counts: list[int] | None = None, wrong: float | None = None, classes: int = 10) -> Sketch:
    return Sketch(1, "classification", classes, [1, 8, 8], samples, 1, counts, wrong)


def test_a_sketch_holds_counts_and_a_score_and_no_sample():
    federation = site()
    found = sketch(federation)
    assert found == {
        "undrift_sketch": 1, "task": "classification", "classes": 10, "shape": [1, 8, 8], "samples": federation.total,
        "rounded_to": 1, "label_counts": np.bincount(federation.y, minlength=10).tolist(), "wrong_labels": 0.0, "name": None,
    }  # fmt: skip


def test_a_site_leaves_out_what_it_does_not_tell():
    found = sketch(site(), Policy(labels=False, wrong_labels=False, round_to=100), "oslo")
    assert found["label_counts"] is None
    assert found["wrong_labels"] is None
    assert (found["samples"], found["name"]) == (1400, "oslo")


def test_counts_are_rounded_to_the_nearest_multiple():
    assert [rounded(count, 10) for count in (0, 4, 5, 14, 15)] == [0, 0, 10, 10, 20]
    assert rounded(7, 1) == 7


def test_a_sketch_is_read_as_it_was_written(tmp_path):
    written = [write_sketch(tmp_path / f"{k}.json", site(seed=k)) for k in range(2)]
    assert read_sketches([tmp_path / "0.json", tmp_path / "1.json"]) == [Sketch(**one) for one in written]


def test_the_twin_has_sizes_labels_and_wrong_labels_of_the_sketches():
    sketches = [told(60, [60] + [0] * 9), told(120, [0] * 8 + [60, 60], 0.5), told(100, None, 0.01)]
    federation = federation_like(sketches)
    assert federation.sizes.tolist() == [60, 120, 100]
    assert np.bincount(federation.clean_y[federation.rows(0)], minlength=10).tolist() == [60] + [0] * 9
    assert (np.bincount(federation.clean_y[federation.rows(2)], minlength=10) >= 9).all()  # as digits has them
    assert [changed(federation)[federation.rows(k)].mean() for k in range(3)] == [0, 0.5, 0]
    assert ud.federate(**like(sketches).options).fingerprint == federation.fingerprint


def test_sites_that_are_too_large_are_scaled_together_and_the_sentence_says_so():
    twin = like([told(100_000), told(50_000)])
    sizes = ud.federate(**twin.options).sizes
    assert sizes[0] == pytest.approx(2 * sizes[1], abs=2)
    assert 1300 < sizes.sum() < 1438
    assert "1 % of their sizes" in twin.sentence
    assert "not on the sites' data" in twin.sentence


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"undrift_sketch": 2}, "version 2, and this Undrift reads 1"),
        ({"undrift_sketch": None}, "is not a sketch"),
        ({"samples": 0}, "samples must be a whole number of at least 1, not 0"),
        ({"label_counts": [1, 2]}, "2 label counts for 10 classes"),
        ({"wrong_labels": 1.5}, "wrong_labels must be"),
        ({"pixels": [1]}, "unknown key"),
        ({"classes": 9, "label_counts": None}, "sketch the same task everywhere"),
    ],
)
def test_what_is_no_sketch_is_refused_in_one_sentence(tmp_path, change, reason):
    paths = [tmp_path / "0.json", tmp_path / "1.json"]
    for path, changed_keys in zip(paths, ({}, change)):
        table = sketch(site(), Policy(wrong_labels=False)) | changed_keys
        path.write_text(
            json.dumps({key: value for key, value in table.items() if key in changed_keys or value is not None})
        )
    with pytest.raises(BadRequest, match=reason) as caught:
        read_sketches(paths)
    assert "\n" not in str(caught.value)


def test_requests_that_no_twin_can_meet():
    with pytest.raises(BadRequest, match="at least 2"):
        read_sketches([])
    with pytest.raises(BadRequest, match="12 classes, digits has 10"):
        like([told(10, classes=12)] * 2)
    with pytest.raises(BadRequest, match="sketches of regression"):
        like([Sketch(1, "regression", 1, [10], 50)] * 2)


def test_three_sites_sketch_their_files_and_the_answer_says_that_it_simulated(tmp_path, monkeypatch, capsys):
    """The whole path as it is typed: `advise FILE --sketch` at every site, then `advise digits --from-sketches …`."""
    plain = [Candidate(name, "plain", None, (), "a control", "untested") for name in ("fedavg", "fedavg-uniform")]
    monkeypatch.setattr(start, "shortlist", lambda *_: Shortlist(tuple(plain), ()))
    paths, sizes = [], []
    for number, name in enumerate(("oslo", "bergen", "tromso")):
        federation = site(3, partition="dirichlet(0.5)")
        x, y = federation.train(number)
        arrays = {"x": x.numpy(), "y": y.numpy(), "x_test": x.numpy(), "y_test": y.numpy()}
        np.savez(tmp_path / f"{name}.npz", **arrays, classes=np.array(list("0123456789")))
        paths.append(str(tmp_path / f"{name}.json"))
        assert command(["advise", str(tmp_path / f"{name}.npz"), "--sketch", paths[-1], "--no-wrong-labels"]) == 0
        said = json.loads((tmp_path / f"{name}.json").read_text())
        sizes.append(said["samples"])
        assert (said["name"], said["wrong_labels"], sum(said["label_counts"])) == (name, None, len(y))
    capsys.readouterr()
    sketches = [word for path in paths for word in ("--from-sketches", path)]
    asked = ["advise", "digits", *sketches, "--rounds", "2", "--epochs", "1"]
    assert command([*asked, "--budget", "60r", "--json", "--quiet", "--out", str(tmp_path / "race")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "This is a simulation on digits, not on the sites' data: 3 clients with their sizes" in answer["text"]
    clients = next(one for one in answer["diagnosis"]["findings"] if one["name"] == "clients")
    # A fifth of every client is held out for validation.
    assert clients["details"]["total"] == pytest.approx(0.8 * sum(sizes), abs=3)
    assert answer["recommended"]["method"] in ("fedavg", "fedavg-uniform")
    assert "--data digits" in answer["recommended"]["command"]
