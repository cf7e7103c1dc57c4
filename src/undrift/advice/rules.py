"""Which remedy for which finding, as data. Every rule names the kept result it rests on, or is untested.

A kept result says what a remedy gained over a control in one setting, so it says what is worth racing, never what will win.
`tests/advice/test_rules.py` computes every number again from the files of docs/results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNTESTED = "untested"


@dataclass(frozen=True)
class Kept:
    """A difference of two rows of a result file, in points: the mean over the seeds that both have."""

    file: str  # of docs/results
    measure: str  # a name in the lines' `values`, else a field of the lines
    where: Mapping[str, Any]  # fields that both lines have
    this: Mapping[str, Any]
    control: Mapping[str, Any]
    points: float
    seeds: int

    @property
    def text(self) -> str:
        setting = "".join(f"{key} {value}, " for key, value in self.where.items())
        against = ", ".join(map(str, self.control.values()))
        sign = "+" if self.points > 0 else "−" if self.points < 0 else ""
        return (
            f"{sign}{abs(self.points):.1f} points over {against} (docs/results/{self.file}.jsonl: {setting}"
            f"{self.seeds} seed{'s' * (self.seeds > 1)})"
        )


@dataclass(frozen=True)
class Rule:
    """A remedy for an axis of findings. Of an axis the first rules that apply are taken."""

    axis: str  # one of `findings.AXES`, "plain" or "personal"
    method: str
    reason: str
    kept: Kept | None = None
    only: str = ""  # a condition on the findings: "gathered", "spread", "few classes"

    @property
    def evidence(self) -> str:
        return UNTESTED if self.kept is None else self.kept.text


LAST_TEN = "G, last 10 rounds"
TABLE = "fedbss-table1-quick"  # digits, 60 rounds
UNIFORM = {"row": "FedAvg"}  # its weights are uniform in that table


def exhaustive(federation: str, this: str, control: str, points: float) -> Kept:
    """A result of the exhaustive search of `benchmarks/advisor.py`: both methods at their own best rate."""
    return Kept("advisor", "test", {"federation": federation}, {"label": this}, {"label": control}, points, 3)


# fmt: off
RULES = (
    Rule("plain", "fedavg", "plain averaging, by size"),
    Rule("plain", "fedavg-uniform", "plain averaging, every client alike",
         Kept("controls-uniform-quick", LAST_TEN, {"column": "unequal sizes, 20 % noise before"}, {"row": "uniform"},
              {"row": "size"}, 14.3, 3)),
    Rule("label skew", "scaffold", "control variates take out what a client's own labels add to every step",
         Kept(TABLE, LAST_TEN, {"column": "Dir 0.1"}, {"row": "Scaffold"}, UNIFORM, 2.7, 1)),
    Rule("label skew", "feddyn", "every client remembers its drift, and the server takes it out",
         exhaustive("Fashion-MNIST, label skew", "feddyn lr=0.0125", "fedavg lr=0.0125", 6.0)),
    Rule("label skew", "fedrs", "a client with few classes does not push the scores of the others down",
         Kept(TABLE, LAST_TEN, {"column": "Shards 2"}, {"row": "FedRS"}, UNIFORM, 0.9, 1), "few classes"),
    Rule("label skew", "fedexp", "the server steps further where the clients' updates disagree",
         Kept(TABLE, LAST_TEN, {"column": "Dir 0.1"}, {"row": "FedExP"}, UNIFORM, 1.2, 1)),
    Rule("quantity skew", "fednova", "clients that take more steps do not pull the mean towards themselves"),
    Rule("feature skew", "fedexp", "the server steps further where the clients' updates disagree",
         exhaustive("digits, feature skew", "fedexp lr=0.2", "fedavg lr=0.2", 3.9)),
    Rule("feature skew", "fedavgm", "momentum at the server keeps what the cohorts have in common",
         exhaustive("PACS by domain", "fedavgm lr=0.005", "fedavg lr=0.02", 1.6)),
    Rule("feature skew", "fedbn", "normalisation layers stay at the client, where the inputs are"),
    Rule("feature skew", "fedsam", "flat minima bear a shift of the inputs"),
    Rule("wrong labels", "bound", "a client whose losses spread widely counts less",
         Kept("controls-weights-quick", "G, last tenth", {"column": "30 % wrong clients"}, {"row": "bound (1/eta)"},
              {"row": "uniform"}, 13.3, 3), "gathered"),
    Rule("wrong labels", "geomedian", "a minority of misled clients cannot move a median far",
         Kept("who-survives-fashion-mnist", "accuracy", {"trouble": "pair", "share": 0.4}, {"rule": "geomedian"},
              {"rule": "fedavg"}, 12.7, 3), "gathered"),
    Rule("wrong labels", "fedbss", "samples that the model finds hard come late in every round",
         Kept("controls", "accuracy", {"study": "fedbss"}, {"method": "fedbss"}, {"method": "fedavg"}, 6.8, 3), "spread"),
    Rule("wrong labels", "fednolowe", "clients with a low training loss count a little more",
         Kept("controls", "accuracy", {"study": "fednolowe"}, {"method": "fednolowe"}, {"method": "fedavg"}, 3.9, 3)),
    Rule("drift", "scaffold", "control variates correct every local step",
         Kept(TABLE, LAST_TEN, {"column": "Dir 0.5"}, {"row": "Scaffold"}, UNIFORM, 1.6, 1)),
    Rule("drift", "feddyn", "every client remembers its drift, and the server takes it out",
         exhaustive("digits, label skew", "feddyn lr=0.2", "fedavg lr=0.2", 7.7)),
    Rule("drift", "fedavgm", "momentum at the server evens out what differs from cohort to cohort"),
    Rule("drift", "fedprox", "a pull towards the received model",
         Kept(TABLE, LAST_TEN, {"column": "Dir 0.1"}, {"row": "FedProx"}, UNIFORM, 0.0, 1)),
    Rule("personal", "fliu25", "every client keeps a quarter of its own model",
         Kept("fliu-table1-quick", "L1 Acc(L)", {"column": "PATH"}, {"row": "FLIU25"}, {"row": "FedAvg"}, 2.5, 1)),
    Rule("personal", "finetune", "every client trains the global model a little further"),
    Rule("personal", "fedper", "the last layer stays at the client, where the labels are"),
    Rule("personal", "local", "every client trains alone: what a federation has to be better than"),
    Rule("personal", "ditto", "a personal model beside the global one, held near it"),
)

# Compositions that were measured, by their text.
COMPOSITIONS = {
    "fedbss+scaffold@fednolowe":
        Kept("demo", "accuracy", {}, {"method": "fedbss+scaffold@fednolowe"}, {"method": "fedavg"}, 3.7, 3),
    "scaffold@bound":
        Kept("bound-table1-quick", "G", {"column": "10, noise after"}, {"row": "SCAFFOLD, bound"}, {"row": "FedAvg, size"}, 10.6, 1),
}

# The one main parameter of a method, and the values worth racing: its default and what lies about it.
PARAMETERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "fedprox": ("mu", (0.01, 0.1, 1.0)), "feddyn": ("alpha", (0.01, 0.1)), "fedlc": ("tau", (0.5, 1.0)),
    "fedrs": ("alpha", (0.5, 0.9)), "fedavgm": ("rho", (0.5, 0.9)), "fedsam": ("rho", (0.02, 0.05, 0.1)),
    "moon": ("mu", (0.1, 1.0)), "feddecorr": ("beta", (0.05, 0.1)), "fedntd": ("beta", (0.3, 1.0)),
    "flood": ("a", (1.0, 5.0)), "trimmed": ("share", (0.1, 0.2)), "fedadam": ("lr", (0.003, 0.01, 0.03)),
    "fedyogi": ("lr", (0.003, 0.01, 0.03)), "fedadagrad": ("lr", (0.003, 0.01, 0.03)), "feddisco": ("a", (0.2, 0.5)),
    "ditto": ("lam", (0.1, 1.0)), "pfedme": ("lam", (5.0, 15.0)), "finetune": ("epochs", (1, 3)),
}
# fmt: on
