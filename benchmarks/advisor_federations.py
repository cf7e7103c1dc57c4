"""The federations of `benchmarks/advisor.py`, and the methods and rates that are tried on them exhaustively.

Every federation is small enough for a run to take about a second on one core. Fashion-MNIST and PACS are parts of those data
sets, drawn once with a fixed seed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from undrift import data
from undrift.methods.evidence import tasks

VALIDATION = 0.2
FACTORS = (0.25, 1.0, 4.0)  # of the rate
SEEDS = (0, 1, 2)  # the best is chosen on these
FRESH = (2000, 2001, 2002)  # and measured on these
METHODS = 15  # per federation: the first ones that run on its task
IN_ORDER = (
    "fedavg", "fedavg-uniform", "fednova", "fedavgm", "fednolowe", "fedprox", "scaffold", "feddyn", "fedlc", "fedntd", "flood",
    "fedbss", "bound", "fedexp", "geomedian", "median", "trimmed", "fedadam", "fedasl", "fedyogi", "fedcda", "fedsam",
)  # fmt: skip
DIGITS = {"data": "digits", "clients": 20, "rounds": 20}
FASHION = {"data": "fashion-mnist", "part": (2000, 1000), "clients": 20, "rounds": 20, "model": "mlp(32)"}
SPREAD, GATHERED = "symmetric(0.3)", "symmetric(0.3, unit=client)"
FEDERATIONS: dict[str, dict[str, Any]] = {
    "digits, alike": {**DIGITS, "partition": "iid", "rounds": 30},
    "digits, label skew": {**DIGITS, "partition": "dirichlet(0.1)"},
    "digits, two classes each": {**DIGITS, "partition": "pathological(2)"},
    "digits, quantity skew": {**DIGITS, "partition": "quantity_skew(0.3)"},
    "digits, feature skew": {**DIGITS, "partition": "iid", "domains": "identity+inverted+rotated(45)+blurred(1)"},
    "digits, noise spread": {**DIGITS, "partition": "dirichlet(0.5)", "noise": SPREAD},
    "digits, noise gathered": {**DIGITS, "partition": "dirichlet(0.5)", "noise": GATHERED},
    "digits, label skew and noise": {**DIGITS, "partition": "dirichlet(0.1)", "noise": SPREAD},
    "Fashion-MNIST, label skew": {**FASHION, "partition": "dirichlet(0.1)"},
    "Fashion-MNIST, quantity skew and gathered noise": {**FASHION, "partition": "quantity_skew(0.3)", "noise": GATHERED},
    "PACS by domain": {"data": "pacs32", "part": (1200, 600), "partition": "by_domain", "clients": 12, "rounds": 20,
                       "model": "mlp(12)", "lr": 0.02},
    "breast cancer, label skew": {"data": "breast-cancer", "partition": "dirichlet(0.1)", "clients": 10, "rounds": 20},
    "diabetes, target skew": {"data": "diabetes", "partition": "target_skew(1)", "clients": 10, "rounds": 20, "lr": 0.01},
    "Shakespeare by role": {"data": "shakespeare(roles=10, pieces=8, length=40)", "model": "lstm(16, 32)", "rounds": 20,
                            "optimizer": "adam", "lr": 0.01, "batch": 4, "epochs": 1, "clip": 5.0},
}  # fmt: skip
# Chosen before any result on them was looked at (FedAvg was timed once): a check of what was tuned on the others.
BLIND: dict[str, dict[str, Any]] = {
    "USPS, shards": {"data": "usps", "part": (1500, 800), "partition": "shards(2)", "clients": 20, "rounds": 20, "model": "mlp(32)"},
    "MNIST, label skew and confused pairs": {"data": "mnist", "part": (1500, 800), "partition": "dirichlet(0.3)", "clients": 15,
                                             "noise": "pair(0.2)", "rounds": 20, "model": "mlp(32)"},
    "MNIST, noisy and rotated images": {"data": "mnist", "part": (1500, 800), "partition": "dirichlet(1)", "clients": 12,
                                        "domains": "identity+noisy(0.3)+rotated(30)", "rounds": 20, "model": "mlp(32)"},
    "digits, label and quantity skew": {**DIGITS, "partition": "label_quantity_skew(0.5)", "clients": 15},
    "breast cancer, alike": {"data": "breast-cancer", "partition": "iid", "clients": 8, "rounds": 20},
}  # fmt: skip
SETS = {"tuned": FEDERATIONS, "blind": BLIND}
EVERY = {**FEDERATIONS, **BLIND}
TASKS = {"diabetes, target skew": "regression", "Shakespeare by role": "sequence"}
REFUSED = {  # with the reasons that a run gives
    "diabetes, target skew": ("bound",),  # it needs logits of classes
    "Shakespeare by role": ("fednova", "scaffold"),  # they need a step count, which Adam does not have
}
# Kept results of other benchmarks on the same data and partition: (file, column).
EVIDENCE = {
    "digits, label skew": (("fedbss-table1-quick", "Dir 0.1"),),
    "digits, label skew and noise": (("fedbss-table1-quick", "Dir 0.1"),),
    "digits, two classes each": (("fedbss-table1-quick", "Shards 2"),),
    "digits, noise spread": (("fedbss-table1-quick", "Dir 0.5"),),
    "digits, noise gathered": (("fedbss-table1-quick", "Dir 0.5"), ("controls-weights-quick", "30 % wrong clients")),
}


def options_of(name: str) -> dict[str, Any]:
    """The options of a run on a federation, without method, rate and seed."""
    options = dict(EVERY[name])
    if "part" in options:
        options["data"] = str(part_of(options["data"], *options.pop("part")))
    return {"validation": VALIDATION, "evaluate_every": 100, "engine": "inline", **options}


def methods_of(name: str) -> list[str]:
    task = TASKS.get(name, "classification")
    runs = [method for method in IN_ORDER if tasks()[method][task].startswith("yes")]
    return [method for method in runs if method not in REFUSED.get(name, ())][:METHODS]


def rates_of(name: str) -> list[float]:
    return [EVERY[name].get("lr", 0.05) * factor for factor in FACTORS]


def part_of(name: str, train: int, test: int) -> Path:
    """An .npz with so many samples of a data set, the same at every call."""
    path = Path(tempfile.gettempdir()) / f"undrift-{name}-{train}-{test}.npz"
    if path.exists():
        return path
    whole, draw, arrays = data.load(name), np.random.default_rng(0), {}
    for part, size in (("train", train), ("test", test)):
        rows = np.sort(draw.permutation(len(getattr(whole, f"y_{part}")))[:size])
        for key in ("x", "y", "domain"):
            if (values := getattr(whole, f"{key}_{part}", None)) is not None:
                arrays[f"{key}_{part}"] = np.asarray(values)[rows]
    if getattr(whole, "domains", None):
        arrays["domains"] = np.array(whole.domains)
    unfinished = path.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **arrays)
    unfinished.rename(path)
    return path
