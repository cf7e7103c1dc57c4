"""What goes to a worker and what comes back. An engine maps orders to replies and knows nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from undrift.context import Tree
from undrift.vector import Integers


@dataclass
class Order:
    """Work for one client ("train", "hold", "tune"), one stretch of the test set ("judge"), or for a diagnostic.

    `state_round` is the version of the client's state that the server has committed (None: never), and the client
    must use exactly that one; `keep_round` is the version in the oldest checkpoint that may still be resumed: whoever
    keeps the states deletes only versions below it.
    """

    work: str
    round: int
    client: int
    vector: torch.Tensor
    integers: Integers
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # by part
    state_round: int | None = None
    keep_round: int | None = None
    state: Tree = None  # filled in by the keeper of the states
    judge: tuple[str, ...] = ()  # "own", "global": where what the client holds is judged
    budget: int | None = None  # steps a slow client manages
    span: tuple[int, int] = (0, 0)  # "judge": samples of the test set; "diagnose": which diagnostic, which piece
    data: str = "global"  # "judge": which set
    size: int = 0  # expected cost, for balancing


@dataclass
class Failure:
    """Why a client is left out: kind is "exception", "nonfinite", "malformed", "empty", "dropped" or "worker"."""

    kind: str
    detail: str
    traceback: str = ""


@dataclass
class Reply:
    round: int
    client: int
    vector: torch.Tensor | None = None
    integers: Integers = field(default_factory=dict)
    n: int = 0
    steps: int = 0
    a: float | None = None
    loss: float = float("nan")
    last: float = float("nan")
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    state: Tree = None  # taken out by the keeper of the states
    stateful: bool = False  # a new version of the state was written
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    verdicts: dict[str, dict[str, float]] = field(default_factory=dict)  # data -> metric -> value
    logits: torch.Tensor | None = None  # "judge"
    looked: int = 0  # samples that passed through networks beside training, to be scored
    looked_in_epochs: int = 0  # of these, while it trained
    learned: int = 0  # samples trained on, those of a second model included
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)  # seconds of "training", "scoring", "judging"
    found: dict[str, Any] = field(default_factory=dict)  # "diagnose"
    failure: Failure | None = None

    def failed(self, kind: str, detail: str, traceback: str = "") -> Reply:
        return replace(self, failure=Failure(kind, detail, traceback), vector=None, messages={}, state=None)
