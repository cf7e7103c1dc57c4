"""What is drawn is what was noted, for every row of the table: each figure is read back and compared with the record."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from undrift.report.label_distribution import facts
from undrift.report.traces import STYLES, traces


def noted(outcome):
    """{(part, name): {(round, client): value}} straight from the record."""
    found = {}
    for round, client, part, name, value in outcome.store.record.all("SELECT * FROM notes"):
        found.setdefault((part, name), {})[round, client] = json.loads(value)
    return found


def pieces(values):
    """Lists that were joined with gaps between them."""
    out = [[]]
    for value in values:
        if value is None:
            out.append([])
        else:
            out[-1].append(value)
    return out[:-1]


def by_slider(figure, rounds):
    """(round, its marks), as the slider shows them; only those of the last round are drawn at first."""
    if len(rounds) == 1:
        return [(rounds[0], list(figure.data))]
    steps = figure.layout.sliders[0].steps
    assert [int(step.label) - 1 for step in steps] == rounds
    assert [bool(mark.visible) for mark in figure.data] == list(steps[-1].args[0]["visible"])
    return [(round, [mark for mark, on in zip(figure.data, step.args[0]["visible"]) if on])
            for round, step in zip(rounds, steps)]  # fmt: skip


def five(values):
    return np.quantile([v for v in values if v is not None and math.isfinite(v)], [0, 0.25, 0.5, 0.75, 1])


def read_level(trace, values):
    data = trace.figure.data
    lines, *maps = data[:5], *data[5:]
    if not maps:  # the server's own number, or the same for everybody
        (line,) = lines
        assert {(x - 1, y) for x, y in zip(line.x, line.y)} == {(round, value) for (round, _), value in values.items()}
        return
    (cells,) = maps
    drawn = {
        (x - 1, int(client)): z for client, row in zip(cells.y, cells.z) for x, z in zip(cells.x, row) if z is not None
    }
    assert drawn == {key: value for key, value in values.items() if value is not None}
    for place, line in enumerate(lines):
        assert [x - 1 for x in line.x] == sorted({round for round, _ in drawn})
        for x, y in zip(line.x, line.y):
            assert y == pytest.approx(five(v for (round, _), v in values.items() if round == x - 1)[place])


def read_quantiles(trace, values):
    *lines, boxes = trace.figure.data
    last = max(round for round, _ in values)
    for i, drawn in enumerate((boxes.lowerfence, boxes.q1, boxes.median, boxes.q3, boxes.upperfence)):
        assert dict(zip(map(int, boxes.x), drawn)) == {
            c: value[i] for (round, c), value in values.items() if round == last
        }
        for x, y in zip(lines[i].x, lines[i].y):
            assert y == pytest.approx(np.mean([value[i] for (round, _), value in values.items() if round == x - 1]))
    assert [x - 1 for x in lines[0].x] == sorted({round for round, _ in values})


def read_curve(trace, values, beside=None, over=None):
    rounds = sorted({round for round, _ in values})
    for round, marks in by_slider(trace.figure, rounds):
        for mark, drawn in zip(marks, (values, beside)):
            expected = [value for (at, _), value in drawn.items() if at == round]
            assert pieces(mark.y) == expected
            length = len(expected[0])
            x = over[round, None] if over and (round, None) in over else list(range(1, length + 1))
            assert pieces(mark.x) == [x] * len(expected)
        assert len(marks) == 1 + (beside is not None)


def read_maps(trace, values):
    for round, (mark,) in by_slider(trace.figure, sorted({round for round, _ in values})):
        drawn = {int(c): {str(x): z for x, z in zip(mark.x, row) if z is not None} for c, row in zip(mark.y, mark.z)}
        expected = {c: value for (at, c), value in values.items() if at == round}
        assert drawn == {c: v if isinstance(v, dict) else {str(i): n for i, n in enumerate(v)}
                         for c, v in expected.items()}  # fmt: skip


def read_points(trace, values):
    for round, (mark,) in by_slider(trace.figure, sorted({round for round, _ in values})):
        mine = [value for (at, _), value in values.items() if at == round]
        assert list(zip(mark.x, mark.y)) == [pair for value in mine for pair in zip(*value.values())]


RARE = (  # notes that no row of the table makes
    "bound(invert=mean_loss)", "bound(invert=sqrt_v)", "fednolowe(loss=last)", "fedasl(loss=last)",
    "fedbss(T1=0, boundary=loss, level=0)", "feddyn(alpha=10, cap=1)",
)  # fmt: skip
READERS = {
    "level": read_level, "quantiles": read_quantiles, "counts": read_maps, "mixture": read_maps, "points": read_points,
}  # fmt: skip


@pytest.fixture(scope="session")
def outcomes(rows, undisturbed):
    """The short run of every row, and of those that make the rare notes."""
    return [undisturbed(row) for row in (*rows, *map(type(rows[0]), RARE)) if not row.other_name]


def test_every_note_of_every_part_is_drawn_as_it_was_noted(outcomes):
    done = set()  # a figure takes a tenth of a second, so each note of each part is read back once
    for outcome in outcomes:
        notes = noted(outcome)
        for trace in traces(outcome.store.record.all).values():
            assert trace.text
            values, rule = notes[trace.part, trace.name], trace.name.removesuffix(trace.name.rpartition(".")[2])
            others = [(trace.part, rule + other) for other in (trace.style.beside, trace.style.over)]
            if (trace.part, trace.name) in done:
                continue
            done |= {(trace.part, trace.name), *others}
            if trace.style.kind == "text":
                assert list(values.values())[-1] in trace.text
                assert trace.figure is None
            elif trace.style.kind == "curve":
                read_curve(trace, values, *map(notes.get, others))
            else:
                READERS[trace.style.kind](trace, values)
        assert set(notes) - done == set(), "noted and not drawn"


def test_weights_are_drawn_against_what_the_clients_hold(outcomes):
    done = set()
    for outcome in outcomes:
        (part,) = {p.key for p in outcome.setup.method.parts if p.axis == "weighting"}
        if part in done:
            continue
        done.add(part)
        notes, known = noted(outcome), facts(outcome.setup.federation, range(6))
        trace = traces(outcome.store.record.all, outcome.setup.federation)[f"{part}.weight_against"]
        facts_drawn = ["size", "label entropy", "label Hellinger distance", "noise rate", "training loss"]
        assert list(trace.values) == facts_drawn
        assert [fact in trace.text for fact in facts_drawn] == [True] * 5
        for fact, mark in zip(trace.values, trace.figure.data):
            assert sorted(mark.text) == [f"client {k}" for k in range(6)]
            for text, x, y in zip(mark.text, mark.x, mark.y):
                client = int(text.split()[-1])
                weight, loss = (np.mean([value for (_, c), value in notes[part, name].items() if c == client])
                                for name in ("weight", "loss"))  # fmt: skip
                assert y == pytest.approx(weight)
                assert x == pytest.approx(loss if fact == "training loss" else known[fact][client])
    assert len(done) > 7


def test_every_look_is_of_a_note_that_some_part_makes(outcomes):
    """A look nobody uses is a misspelt name."""
    made = {(part.partition(".")[0], name.rpartition(".")[2]) for outcome in outcomes for part, name in noted(outcome)}
    in_laws = {
        "sampling.nonfinite",
        "sampling.guarded",
        "weighting.guarded",
        "sampling.biased_samples",
    }  # tests/laws has them
    assert set(STYLES) - {".".join(one) for one in made} == in_laws


def test_a_note_of_a_part_of_ones_own_is_drawn_by_its_looks():
    values = {"number": 0.5, "list": [1.0, 2.0], "shares": {"3": 0.5}, "pairs": {"a": [1.0], "b": [2.0]}, "word": "yes"}
    rows = [(0, 7, "weighting.mine", name, json.dumps(value)) for name, value in values.items()]
    drawn = traces(lambda query, *values: rows if "FROM notes" in query else [])
    kinds = {trace.name: trace.style.kind for trace in drawn.values()}
    assert kinds == {"number": "level", "list": "curve", "shares": "mixture", "pairs": "points", "word": "text"}
    assert [trace.figure is None for trace in drawn.values()] == [False, False, False, False, True]


def test_facts_by_hand():
    """Two clients: three samples of class 0, one of them wrong; one sample of each class."""
    import torch

    from undrift.federation.federation import Federation

    x = torch.zeros(5, 2)
    y, clean = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 0, 1, 0, 1])
    held = [np.arange(3), np.arange(3, 5)]
    federation = Federation("two", (x, y), (x, y), held, ["a", "b"], held, clean=clean)
    known = facts(federation, [0, 1])
    assert known["size"] == {0: 3, 1: 2}
    assert known["label entropy"] == pytest.approx({0: 0.0, 1: math.log(2)})
    assert known["noise rate"] == pytest.approx({0: 1 / 3, 1: 0.0})
    # everybody: shares 4/5 and 1/5. Client 0: √(1 − √(4/5)); client 1: √(1 − √(2/5) − √(1/10))
    apart = {0: math.sqrt(1 - math.sqrt(0.8)), 1: math.sqrt(1 - math.sqrt(0.4) - math.sqrt(0.1))}
    assert known["label Hellinger distance"] == pytest.approx(apart)
