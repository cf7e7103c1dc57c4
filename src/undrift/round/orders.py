"""Orders and replies: what the server asks of a worker, and what comes back. An engine maps one to the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from undrift.contract.context import Message, Tree
from undrift.core.vector import Integers


@dataclass(frozen=True)
class Order:
    """Work for one client, for one span of a test set, or for a diagnostic.

    work           what is done                                         client
    "train"        a client's round: local training, upload             its id
    "personalize"  what the client would use with this model, measured  its id
    "fine_tune"    a client that never trains fine-tunes the model      its id
    "evaluate"     the logits of one span of a test set                 -1 − its place
    "diagnose"     one piece of a diagnostic                            either

    `state_round` is the version of the client's state that the server has committed (None: never). The client must use
    exactly that version. `keep_round` is the version in the oldest checkpoint that may still be resumed: the keeper
    of the states deletes only versions below it.
    """

    work: str
    round: int
    client: int
    vector: torch.Tensor
    integers: Integers
    server_messages: dict[str, Message] = field(default_factory=dict)  # by part
    state_round: int | None = None
    keep_round: int | None = None
    state: Tree = None  # filled in by the keeper of the states (the store, or a site)
    evaluate_on: tuple[str, ...] = ()  # "own", "global", "validation": where the client's model is evaluated
    budget: int | None = None  # steps a slow client manages
    span: tuple[int, int] = (0, 0)  # "evaluate": samples of the test set; "diagnose": which diagnostic, which piece
    data: str = "global"  # "evaluate": which set; "personalize": "held" for the model the client trained last
    size: int = 0  # expected cost, for balancing


@dataclass
class Failure:
    """Why a client is left out: kind is "exception", "nonfinite", "malformed", "empty", "dropped" or "worker"."""

    kind: str
    detail: str
    traceback: str = ""


@dataclass
class Reply:
    """What came of an order. A reply with a failure has no vector, no messages and no state."""

    round: int
    client: int
    vector: torch.Tensor | None = None
    integers: Integers = field(default_factory=dict)
    n: int = 0
    steps: int = 0
    effective_steps: float | None = None
    loss: float = float("nan")
    last: float = float("nan")
    client_messages: dict[str, Message] = field(default_factory=dict)  # by part
    state: Tree = None  # taken out by the keeper of the states
    stateful: bool = False  # a new version of the state was written
    notes: list[tuple[str, str, str]] = field(default_factory=list)  # part, name, JSON
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # data -> metric -> value
    logits: torch.Tensor | None = None  # "evaluate"
    samples_scored: int = 0  # samples that passed through networks beside training
    samples_scored_in_epochs: int = 0  # of these, during the local epochs
    samples_trained: int = 0  # samples trained on, those of a second model included
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)  # seconds of "training", "scoring", "judging"
    found: dict[str, Any] = field(default_factory=dict)  # "diagnose"
    packed: dict[str, torch.Tensor] = field(default_factory=dict)  # the update as upload parts send it, at a real site
    failure: Failure | None = None

    def failed(self, kind: str, detail: str, traceback: str = "") -> Reply:
        return replace(self, failure=Failure(kind, detail, traceback), vector=None, client_messages={}, state=None)
