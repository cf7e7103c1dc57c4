"""The evidence for a method: the tests that state its laws, and the results of its controls where they were measured.

Both are written by hand, because neither can be computed. A test checks that the files exist and mention the part. A
finding is one sentence with the setting in which it was measured: another federation may give another result. A method
without a finding has not been measured, and `undrift methods` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = ("weighting.size", "combine.mean", "server.replace")  # the parts of FedAvg

# Files of tests/laws that are not named after their part.
SHARED = {
    "test_private": ("personalize.fedrep", "private.head", "private.named", "private.norms"),
    "test_server_side": ("combine.fednova", "server.fedmr", "server.momentum", *PLAIN),
    "test_adaptive": ("server.fedadagrad", "server.fedadam", "server.fedyogi"),
    "test_dac": ("weighting.flood",),
    "test_fednolowe": ("weighting.uniform",),
}


def laws(part: str) -> str:
    """The file of tests/laws for a part called axis.name."""
    shared = [file for file, parts in SHARED.items() if part in parts]
    return shared[0] if shared else f"test_{part.partition('.')[2]}"


@dataclass(frozen=True)
class Finding:
    """A result of the controls, and the setting in which it was measured."""

    sentence: str
    where: str


SPREAD = "digits, Dirichlet(0.1), 30 % wrong labels, three seeds: docs/results/controls.md"
GATHERED = "digits, wrong labels gathered at large clients, one to three seeds: docs/results/README.md"
AT_PAPER_SCALE = "MNIST at the paper's scale, {}: docs/results/README.md"

FINDINGS = {
    "flood": (
        Finding(
            "with sample weights divided by their batch mean it cannot be distinguished from FedAvg; as published "
            "the run falls as far as with the same mean weight and no selection, as with a larger learning rate",
            SPREAD,
        ),
    ),
    "fedbss": (
        Finding(
            "above uniform FedAvg, but not distinguished from a random order, nor from leaving the biased samples out",
            SPREAD,
        ),
    ),
    "bound": (
        Finding("not distinguished from its own weights permuted among the clients, nor from uniform weights", SPREAD),
        Finding(
            "above uniform weights and above its own weights given to other clients; 1/mean loss does as well", GATHERED
        ),
        Finding(
            "reproduces; of 22 points above size weights uniform weights have 19, and swing more",
            AT_PAPER_SCALE.format("one seed"),
        ),
    ),
    "fednolowe": (
        Finding("not distinguished from uniform weights, nor from its tilt reversed", SPREAD),
        Finding("above size weights in each seed, below uniform ones in each", AT_PAPER_SCALE.format("three seeds")),
    ),
    "fliu": (Finding("not distinguished from γ shuffled among the clients", SPREAD),),
}
