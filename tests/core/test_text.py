"""One grammar for everything a person types: build(parse(spell(x))) == x, and errors are sentences."""

from __future__ import annotations

import math

import pytest

from undrift import models
from undrift.core.errors import BadRequest
from undrift.core.text import Call, build, parse, parse_method, spell
from undrift.federation import partition
from undrift.federation.environment import noise
from undrift.methods import naming
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED
from undrift.round import selection

REQUIRED = {"mix": "mix([size(), bound()], [0.5, 0.5])", "named": 'named("*bias")'}
PARTS = [(axis, name) for axis, table in part_tables().items() for name in table]


@pytest.mark.parametrize(("axis", "name"), PARTS)
def test_every_part_is_built_again_from_its_spelling(axis, name):
    table = part_tables()[axis]
    part = build(axis, REQUIRED.get(name, name), table)
    assert build(axis, parse(spell(part)), table) == part


@pytest.mark.parametrize("words", ["dirichlet(0.1)", "pathological(2)", "iid", "resample(50)", "shards(2)"])
def test_partitions_are_built_again_from_their_spelling(words):
    table = {name: getattr(partition, name) for name in partition.__all__}
    made = build("partition", words, table)
    assert build("partition", spell(made), table) == made


@pytest.mark.parametrize("words", ["symmetric(0.2)", "pair(0.1, unit=client)", "constant(0.2, 0)", "permute(0.3)"])
def test_noise_is_built_again_from_its_spelling(words):
    table = {name: getattr(noise, name) for name in noise.__all__}
    made = build("noise", words, table)
    assert build("noise", spell(made), table) == made


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("fedavg", Call("fedavg")),
        ("dirichlet(0.1)", Call("dirichlet", (0.1,))),
        ("x( 1 , a = -2.5e-3 )", Call("x", (1,), {"a": -2.5e-3})),
        ("x(true, False, none)", Call("x", (True, False, None))),
        ("x(\"a, b)\", 'c')", Call("x", ("a, b)", "c"))),
        ("x([1, 2.0, word], [])", Call("x", ((1, 2.0, "word"), ()))),
        ("x(y(1), z=w())", Call("x", (Call("y", (1,)),), {"z": Call("w")})),
        ("x(.5, 5.)", Call("x", (0.5, 5.0))),
        ("fedavg-uniform", Call("fedavg-uniform")),
    ],
)
def test_reads(words, call):
    assert parse(words) == call


def test_whole_numbers_and_decimals_stay_apart():
    (whole, decimal) = parse("x(1, 1.0)").args
    assert isinstance(whole, int)
    assert isinstance(decimal, float)


@pytest.mark.parametrize(
    "value", [1, 1.5, 1e-7, True, None, "word", "two words", "nan", "true", (1, ("a", 2.0)), math.inf]
)
def test_values_survive_spelling(value):
    (back,) = parse(f"x({spell(value)})").args
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "words",
    ["x(", "x(1", "x(1))", "x)", "x[1]", "x([1)", "x(1,,2)", "x(=1)", "x(a=)", "x(a=1, 2)", "x(a=1, a=2)", "", "  ",
     "(1)", "x y", "x(1 2)", "x(\"open)", "1x", "x(§)", "x+", "+x", "x@", "@x", "x++y"],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(words):
    with pytest.raises(BadRequest) as caught:
        parse_method(words)
    assert "\n" not in str(caught.value)


def test_unbalanced_brackets_are_called_so():
    with pytest.raises(BadRequest, match="brackets balanced"):
        parse("dirichlet(0.1")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("fedagv", "did you mean fedavg"),
        ("scafold+fliu", "did you mean scaffold"),
        ("fedprox(nu=0.1)", "mu"),
        ("fedprox(mu=high)", "mu must be a number, not high"),
        ("fedprox(0.1, false, 3)", "too many"),
        ("fedavg(1)", "too many"),
        ("fedavg(x=1)", "takes no parameter"),
        ("flood@bond", "did you mean bound"),
        ("sampling.floods", "did you mean flood"),
        ("fedprox(mu=true)", "mu must be a number, not true"),
    ],
)
def test_unknown_names_and_values_are_answered_with_what_is_known(words, hint):
    with pytest.raises(BadRequest) as caught:
        naming.method_pieces(words)
    assert hint in str(caught.value)


def test_every_published_name_stands_for_parts_that_can_be_spelt():
    for name, published in PUBLISHED.items():
        for part in (*published.factory().brings, *published.factory().prefers):
            assert naming.part(part.axis, spell(part)) == part, name


def test_a_name_in_two_tables_asks_which():
    with pytest.raises(BadRequest, match=r"weighting\.uniform|several axes|unknown"):
        naming.method_pieces("norms2")
    assert [piece.key for _, piece, _ in naming.method_pieces("sampling.flood")] == ["sampling.flood"]


@pytest.mark.parametrize("words", ["uniform(0.3)", "all", "probability(0.3)", "list([0, 2])"])
def test_selections_are_built(words):
    assert build("selection", words, selection.NAMES) == build("selection", words, selection.NAMES)


@pytest.mark.parametrize("words", ["mlp(200, 100)", "mlp(100, norm=batch, dropout=0.2)"])
def test_models_share_the_grammar(words):
    call = parse(words)
    assert models.build(call.name, (8, 8, 1), 10, call.args, call.options) is not None
