"""FedNolowe's Table 6: what a round costs and how well the round's direction agrees with the gradient of all clients' loss.

    UNDRIFT_DATA=FOLDER python benchmarks/table6.py [--model lenet5-bn] [--model cnn] [--cohort 5]

MNIST, 50 clients, Dirichlet(0.1), one round of five clients (the gradient of all is taken over ten): FedAvg, FedProx, FedMA
(matching, and the authors' script), FedASL and FedNolowe. The table has the diagnostics `cost` and `gradients`: operations of
the clients' matrix products and convolutions, numbers written elementwise at the clients and at the server, operations of the
server's matrix products, n³ for every assignment of n units, and cos(Σ p_k ∇F_k, ∇F). Below it is the count by hand of FedMA's
matching, from the shapes of the layers alone.
"""

from __future__ import annotations

import argparse

import undrift as ud
from undrift.experiment.network import build_network
from undrift.experiment.options import from_keywords
from undrift.experiment.tables import text_table
from undrift.methods.combine.fedma import chain

METHODS = (
    "fedavg",
    "fedprox(mu=0.001)@uniform",
    "fedma@uniform",
    "fedma(variant=fednolowe)@uniform",
    "fedasl",
    "fednolowe",
)
COSTS = ("flops", "elementwise", "server", "server_products", "server_assignments")


def measured(federation: ud.Federation, model: str, method: str, cohort: int) -> list[str]:
    run = ud.run(method, federation, model=model, rounds=1, epochs=1, batch=32, lr=0.01, momentum=0.9, cohort=cohort,
                 diagnose="gradients(most=10)+cost", engine="inline", evaluate_clients=1, out=False)  # fmt: skip
    found = dict(run.rows("SELECT metric, value FROM metrics WHERE stage='G' AND client IS NULL AND data='train'"))
    cosine = found["alignment_cosine"]
    return [method, *(f"{found[name]:.4g}" for name in COSTS), f"{cosine:.4f}"]


def by_hand(model: str, federation: ud.Federation, cohort: int) -> tuple[int, int]:
    """Operations of the distances and n³ of the assignments, for every client but the reference: a layer of n units with d
    weights (and a bias) each has a product of n × d by d × n, which is 2·n·d·n operations."""
    flat, _ = build_network(from_keywords({"model": model}), federation)
    layers = chain(flat.layout)[:-1]  # classes are not matched
    units = [
        (layer.units, (layer.weight.stop - layer.weight.start) // layer.units + (layer.bias is not None))
        for layer in layers
    ]
    return (cohort - 1) * sum(2 * n * d * n for n, d in units), (cohort - 1) * sum(n**3 for n, _ in units)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--cohort", type=int, default=5)
    given = parser.parse_args()
    federation = ud.federate("mnist", "dirichlet(0.1)", clients=50, seed=0)
    for model in given.model or ["lenet5-bn", "cnn"]:
        rows = [
            ["method", *COSTS, "alignment_cosine"],
            *(measured(federation, model, method, given.cohort) for method in METHODS),
        ]
        products, assignments = by_hand(model, federation, given.cohort)
        print(
            f"\n{model}\n{text_table(rows)}\nFedMA's matching by hand: products {products:.4g}, assignments {assignments:.4g}"
        )


if __name__ == "__main__":
    main()
