"""What a user is told about how clients train: before the rounds, by `show` and `bench --profile`, and where it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from undrift.bench import bare, measure
from undrift.cli import command

RUN = ("run", "--data", "digits", "--clients", "4", "--rounds", "1", "--epochs", "1", "--engine", "inline")


def said(capsys, *arguments):
    code = command([str(argument) for argument in arguments])
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "clients in lock-step, as batched products"),
        (("--lockstep", "off"), "clients one by one (asked for)"),
        (
            ("--method", "fedsam"),
            "clients one by one (the part fedsam needs gradient_at, which looks at one client's network)",
        ),
        (("--model", "cnn", "--lockstep", "on"), "clients in lock-step, as vmap"),
    ],
)
def test_a_run_and_show_say_how_clients_train(tmp_path, capsys, options, sentence):
    code, opening = said(capsys, *RUN, *options, "--out", tmp_path / "run")
    assert code == 0
    assert sentence in opening
    assert sentence in said(capsys, "show", tmp_path / "run")[1]


def test_bench_says_how_the_clients_of_a_workload_train(monkeypatch, capsys):
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((400, 784), dtype=np.float32), draw.integers(0, 10, 400)
    shards = np.array_split(np.arange(400), 100)
    monkeypatch.setattr(measure, "all_works", lambda: (bare.works(x, y, shards, shards), "made up"))
    _, text = said(capsys, "bench", "a", "c", "--profile", "--workers", "1")
    assert "(a) clients one by one (178,110 parameters are too many to gain from it)" in text
    assert "(c) clients in lock-step, as batched products" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--method", "pfedme"), "the part pfedme needs gradient_at, which looks at one client's network"),
        (("--model", "mlp(100, dropout=0.2)"), "the module Dropout"),
        (("--lockstep", "on(size=3)"), "--lockstep: unknown parameter of on 'size'; known: bytes"),
        (("--lockstep", "on(bytes=0)"), "--lockstep: on: bytes must be at least 1"),
        (("--lockstep", "maybe"), "--lockstep: unknown lockstep 'maybe'; known: auto, off, on"),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_it(tmp_path, capsys, options, sentence):
    code, text = said(capsys, *RUN, "--lockstep", "on", *options, "--out", tmp_path / "run")
    assert code == 2
    assert text.startswith("undrift: --lockstep")
    assert sentence in text
    assert text.count("\n") == 1
    assert not (tmp_path / "run").exists()
