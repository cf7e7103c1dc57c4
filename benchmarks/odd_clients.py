"""The weights that every weighting rule and every control gives to unusual clients, for the same models.

    python benchmarks/odd_clients.py [--seeds 5] [--html FILE] [--results docs/results/odd-clients.jsonl]

Digits, eleven clients: six ordinary ones of 60 samples, one whose labels are all wrong (y + 1), one with a single
sample, one with ten times the data, one with two labels in five wrong, one with a single class. The models come from
plain averaging with uniform weights. Every rule is applied once, in the first round and after twenty rounds, to the same
received and the same trained models. The table shows the weight relative to the uniform one: 1 is 1/11.
`--results` keeps a line per moment, rule and seed, which docs/results/odd-clients.md is rendered from.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import undrift as ud
from undrift import data
from undrift.contract.parts import Replies, Weighting
from undrift.core.determinism import one_thread
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.federation.images import stored
from undrift.methods import weighting
from undrift.papers.results import machine
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState

KINDS = ("ordinary", "all wrong", "one sample", "ten times", "noisy", "one class")
OWNERS = ("ordinary",) * 6 + KINDS[1:]
SETTINGS = {"epochs": 2, "cohort": 1.0, "rounds": 21, "evaluate_every": 100, "engine": "inline", "out": False}
WHEN = {"first round": 0, "after 20 rounds": 20}
RULES = (
    "size", "uniform",
    "flood", "flood(phi=constant)", "flood(phi=permuted)", "flood(phi=reversed)",
    "flood(score=msp)", "flood(score=gen)", "flood(score=gen, norm_phi=sum)",
    "bound", "bound(when=after)", "bound(on=held)", "bound(finite=true)", "bound(moment=1)", "bound(loss=zero_one)",
    "bound(loss=ce)", "bound(invert=mean_loss)", "bound(invert=sqrt_v)", "bound(invert=n_over_eta)",
    "bound(invert=permuted)",
    "fednolowe", "fednolowe(loss=last)", "fednolowe(invert=divide)", "fednolowe(invert=exp)",
    "fednolowe(invert=log)", "fednolowe(invert=rank)", "fednolowe(normalise=minmax)", "fednolowe(normalise=centre)",
    "fednolowe(reverse=true)",
    "fedasl", "fedasl(hybrid=true)", "feddisco", "aflama", "mix([size(), bound()], [0.5, 0.5])",
)  # fmt: skip


OUTLIER = {
    "uniform": weighting.uniform(), "fednolowe": weighting.fednolowe(),
    "fednolowe(invert=divide)": weighting.fednolowe(invert="divide"),
    "fednolowe(invert=exp)": weighting.fednolowe(invert="exp"), "fedasl": weighting.fedasl(),
}  # fmt: skip


def odd_federation(seed: int) -> Federation:
    """The clients of OWNERS, in that order, with a proxy set for the rule that needs one."""
    source = data.load("digits")
    draw = np.random.default_rng(seed)
    clean = np.asarray(source.y_train, dtype=np.int64)
    ones = draw.permutation(np.flatnonzero(clean == 1))[:60]
    others = draw.permutation(np.setdiff1d(np.arange(len(clean)), ones))
    sizes = {"one sample": 1, "ten times": 600}
    shards, at = [], 0
    for kind in OWNERS:
        shards.append(ones if kind == "one class" else others[at : at + sizes.get(kind, 60)])
        at += 0 if kind == "one class" else sizes.get(kind, 60)
    y = clean.copy()
    wrong, noisy = shards[OWNERS.index("all wrong")], shards[OWNERS.index("noisy")][:24]
    y[wrong] = (y[wrong] + 1) % 10
    y[noisy] = (y[noisy] + draw.integers(1, 10, len(noisy))) % 10
    tests = np.asarray(source.y_test, dtype=np.int64)
    return Federation(
        "odd digits", (stored(source.standardised(source.x_train)), torch.from_numpy(y)),
        (stored(source.standardised(source.x_test)), torch.from_numpy(tests)), shards, source.classes,
        [np.arange(len(tests))] * len(shards), seed, proxy=others[at : at + 100], clean=torch.from_numpy(clean),
    )  # fmt: skip


def weights(rule: str, federation: Federation, server_state: ServerState, seed: int) -> dict[int, float]:
    """The weights of a rule in the round after `server_state`."""
    options = from_keywords({**SETTINGS, "method": f"fedavg@{rule}", "seed": seed})
    setup, store = prepare(options, federation), RunStore(None)
    loop = setup.loop(Inline(setup.runtime, store.states), store)
    with one_thread():
        result = loop.one_round(replace(server_state, memories={}, versions={}))
    assert not result.events, result.events
    return {
        client: json.loads(value)
        for _, client, _, name, value in result.notes
        if name == "weight" and client is not None
    }


def measured(seeds: int) -> Iterator[dict[str, Any]]:
    """A line per moment, rule and seed: the weight of every kind of client relative to the uniform one."""
    federations = [odd_federation(seed) for seed in range(seeds)]
    for when, rounds in WHEN.items():
        server_states = [start(federation, rounds, seed) for seed, federation in enumerate(federations)]
        for rule in RULES:
            for seed, pair in enumerate(zip(federations, server_states)):
                given = weights(rule, *pair, seed)
                shares = {kind: [given[k] for k in range(len(OWNERS)) if OWNERS[k] == kind] for kind in KINDS}
                relative = {kind: round(len(OWNERS) * float(np.mean(each)), 5) for kind, each in shares.items()}
                yield {"when": when, "rule": rule, "seed": seed, "weights": relative}


def means(lines: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, float]]]:
    """(when, rule, {kind: weight}), means over seeds, in the order of the lines."""
    cells: dict[tuple[str, str], list[dict[str, float]]] = {}
    for line in lines:
        cells.setdefault((line["when"], line["rule"]), []).append(line["weights"])
    return [
        (*cell, {kind: float(np.mean([one[kind] for one in each])) for kind in KINDS}) for cell, each in cells.items()
    ]


def tables(lines: list[dict[str, Any]]) -> str:
    """A table per moment, and the share of a client whose loss is R times the others'."""
    text = ""
    for when in WHEN:
        text += f"\n### {when.capitalize()}\n\n| rule | {' | '.join(KINDS)} |\n|---|{'---:|' * len(KINDS)}\n"
        for at, rule, row in means(lines):
            if at == when:
                text += f"| `{rule}` | {' | '.join(f'{row[kind]:.2f}' for kind in KINDS)} |\n"
    return text


def outlier_table() -> str:
    rows = [f"| m | R | {' | '.join(f'`{rule}`' for rule in OUTLIER)} |", f"|---:|---:|{'---:|' * len(OUTLIER)}"]
    for m, R in ((2, 10), (3, 10), (5, 2), (5, 10), (5, 100), (20, 10), (20, 100)):
        shares = [outlier(part, m, R) for part in OUTLIER.values()]
        rows.append(f"| {m} | {R} | {' | '.join(f'{share:.4f}' for share in shares)} |")
    return "\n".join(rows)


def start(federation: Federation, rounds: int, seed: int) -> ServerState:
    """The server state after this many rounds of plain averaging."""
    if rounds:
        return ud.run("fedavg-uniform", federation, **{**SETTINGS, "rounds": rounds, "seed": seed}).server_state
    setup, store = prepare(from_keywords({**SETTINGS, "seed": seed}), federation), RunStore(None)
    return setup.loop(Inline(setup.runtime, store.states), store).begin()


def outlier(rule: Weighting, m: int, R: float) -> float:
    """The weight of the first of m clients, whose loss is R times that of the others."""
    losses, nothing = [float(R)] + [1.0] * (m - 1), [torch.zeros(0)] * m
    replies = Replies(list(range(m)), [1] * m, nothing, nothing, [1] * m, [1.0] * m, losses, losses, [{}] * m)
    raw = rule.weights(None, replies)  # type: ignore[arg-type]
    return float(raw[0] / raw.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--html", type=Path, help="write the figure here")
    parser.add_argument("--results", type=Path, help="keep the numbers in this file")
    given = parser.parse_args()
    began, found = time.monotonic(), list(measured(given.seeds))
    print(tables(found))
    print(f"\n### One loss R times the others: the share of that client\n\n{outlier_table()}")
    if given.results:
        about = {"machine": machine(), "date": time.strftime("%Y-%m-%d")}
        given.results.write_text("".join(json.dumps({**line, **about}) + "\n" for line in found))
    print(f"\n{given.seeds} seeds, {time.monotonic() - began:.0f} s")
    if given.html:
        figure(means(found), given.html)


def figure(found: list[tuple[str, str, dict[str, float]]], path: Path) -> None:
    """Write a heat map per moment; the colour is log₂ of the weight relative to the uniform one."""
    from undrift.report import page, plots

    sections = []
    for when in WHEN:
        rows = {rule: [row[kind] for kind in KINDS] for at, rule, row in found if at == when}
        fig = plots.figure(f"weight relative to the uniform one, {when}", "", "")
        fig.add_heatmap(
            x=KINDS, y=list(rows), z=[np.log2(np.maximum(row, 2**-4)) for row in rows.values()], zmid=0, zmin=-3, zmax=3,
            text=[[f"{value:.2f}" for value in row] for row in rows.values()], texttemplate="%{text}",
            colorscale="RdBu_r", showscale=False,
        )  # fmt: skip
        fig.update_yaxes(autorange="reversed")
        fig.update_layout(height=70 + 24 * len(rows), margin={"l": 250})
        sections.append((when.replace(" ", "-"), fig))
    page.write(path, "Weights of every rule for unusual clients", sections)


if __name__ == "__main__":
    main()
