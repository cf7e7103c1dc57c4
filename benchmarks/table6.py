"""FedNolowe's Table 6: what a round costs and how well the round's direction agrees with the gradient of all clients' loss.

    UNDRIFT_DATA=FOLDER python benchmarks/table6.py [--model lenet5-bn] [--model cnn3] [--results docs/results/table6.jsonl]

LeNet-5 on MNIST and the CNN on Fashion-MNIST, 50 clients, Dirichlet(0.1), one round of five clients with one epoch (the
gradient of all is taken over ten clients): FedAvg, FedProx, FedMA (matching, and the authors' script), FedASL and FedNolowe.
The table has the diagnostics `cost` and `gradients`: operations of the clients' matrix products and convolutions, numbers
written elementwise at the clients and at the server, operations of the server's matrix products, n³ for every assignment of n
units, ⟨Σ p_k ∇F_k, ∇F⟩/‖∇F‖² and cos(Σ p_k ∇F_k, ∇F). Below it is the count by hand of FedMA's matching, from the shapes of
the layers alone. `--results` keeps the numbers, from which docs/results/table6.md is rendered.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import undrift as ud
from undrift.experiment.network import build_network
from undrift.experiment.options import from_keywords
from undrift.experiment.tables import text_table
from undrift.methods.combine.fedma import chain
from undrift.papers.results import machine

MODELS = {"lenet5-bn": "mnist", "cnn3": "fashion-mnist"}
MATCHING, SCRIPT = "fedma@uniform", "fedma(variant=fednolowe)@uniform"
METHODS = ("fedavg", "fedprox(mu=0.001)@uniform", MATCHING, SCRIPT, "fedasl", "fednolowe")
COSTS = ("flops", "elementwise", "server", "server_products", "server_assignments")
ALIGNMENT = ("alignment", "alignment_cosine")
CLIENTS, COHORT = 50, 5
Line = dict[str, Any]


def measured(federation: ud.Federation, model: str, method: str) -> Line:
    run = ud.run(method, federation, model=model, rounds=1, epochs=1, batch=32, lr=0.01, momentum=0.9, cohort=COHORT,
                 diagnose="gradients(most=10)+cost", engine="inline", evaluate_clients=1, out=False)  # fmt: skip
    found = dict(run.rows("SELECT metric, value FROM metrics WHERE stage='G' AND client IS NULL AND data='train'"))
    return {"model": model, "method": method, **{name: found[name] for name in (*COSTS, *ALIGNMENT)}}


def by_hand(model: str, federation: ud.Federation) -> dict[str, tuple[int, int]]:
    """By method: operations of the distances and n³ of the assignments, for every client but the reference. A layer of n
    units with d numbers each has a product of n × d by d × n, which is 2·n·d·n operations. The matching takes weights and
    biases of all layers but the head, the authors' script the weights of all layers."""
    flat, _ = build_network(from_keywords({"model": model}), federation)
    *hidden, head = chain(flat.layout)
    shapes = [(layer.units, math.prod(layer.weight.shape[1:]), layer.bias is not None) for layer in (*hidden, head)]
    counted = {MATCHING: [(n, d + bias) for n, d, bias in shapes[:-1]], SCRIPT: [(n, d) for n, d, _ in shapes]}
    return {
        method: ((COHORT - 1) * sum(2 * n * d * n for n, d in units), (COHORT - 1) * sum(n**3 for n, _ in units))
        for method, units in counted.items()
    }


def table(lines: list[Line], model: str) -> str:
    """The table of one model, with the count by hand below it."""
    own = [line for line in lines if line["model"] == model]
    rows = [["method", *COSTS, *ALIGNMENT]]
    for line in own:
        rows.append(
            [line["method"], *(f"{line[name]:.4g}" for name in COSTS), *(f"{line[name]:.4f}" for name in ALIGNMENT)]
        )
    hand = [
        f"{line['method']}: products {line['by_hand'][0]:.4g}, assignments {line['by_hand'][1]:.4g}"
        for line in own if "by_hand" in line
    ]  # fmt: skip
    return "\n".join(
        [f"{model} on {own[0]['data']}", text_table(rows), "by hand, from the shapes of the layers:", *hand]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], choices=list(MODELS))
    parser.add_argument("--results", type=Path, help="keep the numbers in this file")
    given = parser.parse_args()
    about = {"machine": machine(), "date": time.strftime("%Y-%m-%d")}
    lines: list[Line] = []
    for model in given.model or MODELS:
        federation = ud.federate(MODELS[model], "dirichlet(0.1)", clients=CLIENTS, seed=0)
        hand = by_hand(model, federation)
        for method in METHODS:
            extra = {"by_hand": hand[method]} if method in hand else {}
            lines.append({**measured(federation, model, method), "data": MODELS[model], **extra, **about})
        print(f"\n{table(lines, model)}", flush=True)
    if given.results:
        given.results.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
