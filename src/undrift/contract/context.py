"""What a part gets to see: the plan (fixed, everywhere), the server (per round), the batch, and the replies.

The client's `Job` is in job.py, because it can do things; what is here only says things.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.core.streams import system_normal, torch_stream
from undrift.core.vector import Flat, Layout

if TYPE_CHECKING:
    from undrift.contract.compose import Method
    from undrift.contract.task import Task

# What states, server memories and shelf rows are made of: everything that can be stored and sent.
Tree = torch.Tensor | int | float | str | None | Mapping[str, "Tree"] | Sequence["Tree"]
Message = dict[str, Any]  # by declared name; the declaration says what a value is


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before the first round and the same on all sides."""

    rounds: int
    epochs: int
    batch: int
    lr: float
    lr_decay: float
    optimizer: str
    momentum: float
    weight_decay: float
    clip: float | None
    persist_momentum: bool
    seed: int
    clients: int  # N, the whole population
    total: int  # n, all training samples of all clients
    classes: int
    layout: Layout
    method: Method
    task: Task
    engine: str = "inline"
    lacks: frozenset[str] = frozenset()  # needs that this run cannot provide
    private: torch.Tensor | None = None  # mask along the vector; None where nothing is private
    private_integers: frozenset[str] = frozenset()
    server_only: torch.Tensor | None = None  # mask of the entries that no client changes; None where there are none
    cohort: float | None = None  # expected number of participants per round, where it is known
    cohorts: str = ""  # how they are drawn: "poisson", "fixed", "all", or "" where that is not known
    uncovered: str = "refuse"  # whether statistics that no privacy mechanism covers may be used: "refuse" or "accept"
    secret: bool = False  # noise and cohorts come from the operating system: a run at real sites
    keep_trained: bool = False  # clients keep what they trained, so that an absent one can be evaluated
    lockstep: int = 0  # bytes of a stack of clients that train together; 0: one by one
    lockstep_why: str = ""  # which of the two, and why, as a sentence
    weight_cap: float = 1.0  # largest share of the weight that one client may have in a round
    evaluate_on: tuple[str, ...] = ("own", "global")  # what a client's models are evaluated on

    @property
    def unsent(self) -> torch.Tensor | None:
        """Mask of the entries that a reply does not carry: private ones, and those that no client changes."""
        if self.server_only is None or self.private is None:
            return self.private if self.server_only is None else self.server_only
        return self.private | self.server_only

    def rate(self, round: int) -> float:
        """η_t = η₀ γ^t, by power, so that it does not depend on how the run got here."""
        return self.lr * self.lr_decay**round

    def share(self, fraction: float) -> int:
        """A schedule that defaults to a fraction of the run: rounded to the nearest, at least one round."""
        return max(1, math.floor(fraction * self.rounds + 0.5))


class SkipRound(Exception):
    """Raised by a server hook that cannot give a result for these replies. The model stays as it is, and the sentence is
    recorded: a robust rule with too few clients must not become the mean that it protects from."""


@dataclass(frozen=True)
class Problem:
    """What `check` yields: an error ends the request, a warning is printed before the first round."""

    level: str  # "error" or "warning"
    sentence: str


@dataclass
class Batch:
    """One mini-batch, in the order in which it becomes known: x, y, index; then logits; then the loss per sample."""

    x: Any  # a tensor, or columns of tensors
    y: Any
    index: torch.Tensor  # positions in the client's training data
    P: torch.Tensor  # the live parameters, flat; do not keep or change
    epoch: int
    logits: torch.Tensor = field(init=False)  # raw, before any Objective.logits
    loss: torch.Tensor = field(init=False)  # per sample, after the Objective.logits hooks
    features: torch.Tensor | None = None  # what entered the head, where a part needs "features"
    head: Callable[[torch.Tensor], torch.Tensor] | None = None  # features -> logits, likewise
    gradient: torch.Tensor | None = None  # raw, along P, where a part needs "gradient"; after backward
    mean_weight: float = 1.0  # of its samples, where a part weighs them
    again: bool = False  # the same batch at another point, for `gradient_at`: keep no count and no running state
    per_sample: Callable[[Batch], torch.Tensor] | None = field(default=None, repr=False)  # by the engine
    recompute: Callable[[Batch, torch.Tensor], torch.Tensor] | None = field(default=None, repr=False)  # by the engine

    def sample_gradients(self) -> torch.Tensor:
        """[samples, nP]: the gradient of every sample's own loss, without what other parts add. For parts with
        `needs = ("sample_gradients",)`."""
        if self.per_sample is None:
            raise RuntimeError("sample_gradients works in a part that declares needs = ('sample_gradients',)")
        return self.per_sample(self)

    def gradient_at(self, P: torch.Tensor) -> torch.Tensor:
        """The gradient that the calling `gradient` hook would have been given, had the model been at P: the same
        samples and dropout draws, and the hooks of all other parts. BatchNorm statistics and the model stay as they are.
        For parts with `needs = ("gradient_at",)`, in `gradient` and `after_step`. Each call counts as training on the
        batch once more."""
        if self.recompute is None:
            raise RuntimeError(
                "gradient_at works in `gradient` and `after_step` of a part that declares needs = ('gradient_at',)"
            )
        return self.recompute(self, P)


@dataclass(frozen=True)
class Replies:
    """The replies that passed quarantine, in client order; `client_messages` are those to the calling part."""

    ids: Sequence[int]
    n: Sequence[int]
    vectors: Sequence[torch.Tensor]
    sent: Sequence[torch.Tensor]
    steps: Sequence[int]
    effective_steps: Sequence[float | None]
    loss: Sequence[float]  # mean raw loss over all local epochs
    last: Sequence[float]  # mean raw loss over the last local epoch
    client_messages: Sequence[Message] = ()
    by_part: dict[str, Sequence[Message]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, part: str) -> Replies:
        """The same with the messages to another part, by its key `axis.name`."""
        return replace(self, client_messages=self.by_part.get(part, [{} for _ in self.ids]))

    def only(self, keep: Sequence[int]) -> Replies:
        """The same without those whose position is not in `keep`."""

        def some(values: Sequence[Any]) -> list[Any]:
            return [values[i] for i in keep]

        by_part: dict[str, Sequence[dict[str, Any]]] = {part: some(messages) for part, messages in self.by_part.items()}
        return Replies(
            some(self.ids),
            some(self.n),
            some(self.vectors),
            some(self.sent),
            some(self.steps),
            some(self.effective_steps),
            some(self.loss),
            some(self.last),
            (),
            by_part,
        )


class Shelf(MutableMapping[int, Any]):
    """Rows of one part on the server, one per client: fetched by id, never copied whole; writes are staged."""

    def __init__(self, fetch: Callable[[int], Tree], known: Callable[[], set[int]], staged: dict[int, Tree]) -> None:
        self._fetch, self._known, self._staged = fetch, known, staged

    def __getitem__(self, client: int) -> Any:
        if client in self._staged:
            return self._staged[client]
        if client not in self._known():
            raise KeyError(client)
        return self._fetch(client)

    def __setitem__(self, client: int, row: Tree) -> None:
        self._staged[client] = copied(row)

    def __delitem__(self, client: int) -> None:
        raise TypeError("a shelf row is replaced, not deleted")

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._known() | set(self._staged)))

    def __len__(self) -> int:
        return len(self._known() | set(self._staged))


@dataclass
class Server:
    """The server as one part sees it in one round. Assigning `memory` or `shelf[client]` stages the value: it is
    committed with the round or not at all."""

    plan: Plan
    round: int
    vector: torch.Tensor  # what is sent by default; do not change in place
    part: str  # the key of the part that looks
    memories: dict[str, Tree]  # committed
    staged: dict[str, Tree]
    shelf: Shelf  # a row per client, that this part keeps at the server
    model: Callable[[torch.Tensor], Flat]  # a module to evaluate or differentiate
    note: Callable[..., None]  # note(name, value, client=None) records a value
    proxy: tuple[Any, Any] | None = None
    last_evaluated: torch.Tensor | None = None  # what stage G evaluated after the last round; Θ⁰ before round 0

    @property
    def memory(self) -> Any:
        """What this part keeps at the server between rounds. Assign a new tree; do not change the old one in place."""
        return self.staged[self.part] if self.part in self.staged else self.memories.get(self.part)

    @memory.setter
    def memory(self, tree: Tree) -> None:
        self.staged[self.part] = copied(tree)

    def stream(self, purpose: str) -> torch.Generator:
        """Draws of this part in this round."""
        return torch_stream(self.plan.seed, f"{self.part}/{purpose}", self.round)

    def noise(self, purpose: str, size: int, deviation: float) -> torch.Tensor:
        """Gaussian noise: from the operating system at real sites, else from a stream of the seed, which protects nobody."""
        if self.plan.secret:
            return system_normal(size).mul_(deviation)
        return torch.randn(size, generator=self.stream(purpose), dtype=torch.float64).mul_(deviation)


def copied(tree: Tree) -> Any:
    """A deep copy of a tree: tensors are cloned, so that no view of a live buffer can stay behind."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone().cpu()
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [copied(value) for value in tree]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"a tree holds dicts, lists, tensors, numbers, bools, strings and None, not {type(tree).__name__}")


def moved(tree: Tree, device: torch.device) -> Any:
    """A tree with its tensors where the model is."""
    if device.type == "cpu":
        return tree
    if isinstance(tree, torch.Tensor):
        return tree.to(device)
    if isinstance(tree, dict):
        return {key: moved(value, device) for key, value in tree.items()}
    return [moved(value, device) for value in tree] if isinstance(tree, list) else tree


def finite_tree(tree: Tree) -> bool:
    if isinstance(tree, torch.Tensor):
        return not tree.is_floating_point() or bool(torch.isfinite(tree).all())
    if isinstance(tree, float):
        return math.isfinite(tree)
    if isinstance(tree, dict):
        return all(finite_tree(value) for value in tree.values())
    if isinstance(tree, list):
        return all(finite_tree(value) for value in tree)
    return True


def add_scaled(G: torch.Tensor, vector: torch.Tensor, scale: float | torch.Tensor) -> None:
    """G += scale · vector, in place. In lock-step `scale` may be a column, with a number for every client."""
    if isinstance(scale, torch.Tensor):
        G.addcmul_(vector, scale)
    else:
        G.add_(vector, alpha=scale)


def stack_scaled(scratches: Sequence[tuple[float, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Scratches (scale, vector along P) of many clients as (column, [clients, nP]), for `add_scaled`."""
    scales, vectors = zip(*scratches)
    return torch.tensor(scales, dtype=torch.float32, device=vectors[0].device).unsqueeze(1), torch.stack(vectors)


def server_sum(vectors: Sequence[torch.Tensor], weights: Sequence[float] | float = 1.0) -> torch.Tensor:
    """Σ weight · vector as a float64 sum in the order given, rounded once to float32: the same on every engine."""
    factors = [weights] * len(vectors) if isinstance(weights, (int, float)) else list(weights)
    out = torch.empty_like(vectors[0], dtype=torch.float32)
    block = 1 << 15  # the running sum of one block stays in the cache
    for at in range(0, len(out), block):
        part = slice(at, at + block)
        pieces = vectors if len(out) <= block else [vector[part] for vector in vectors]
        total = pieces[0].double().mul_(factors[0])
        for piece, factor in zip(pieces[1:], factors[1:], strict=True):
            total.add_(piece, alpha=factor)
        out[part] = total
    return out


def normalised(raw: Sequence[float], n: Sequence[int], signed: bool = False) -> tuple[list[float], str]:
    """Weights that are non-negative (unless `signed`) and sum to one, and why the rule's own could not be used, if so.

    One client gets 1, whatever the rule says (several are 0/0 there). A negative weight or a sum of zero means size
    weights for the whole cohort.

    >>> normalised([1.0, 3.0], [10, 10])
    ([0.25, 0.75], '')
    >>> normalised([-1.0, 3.0], [10, 30])
    ([0.25, 0.75], 'a weight is negative')
    >>> normalised([-1.0, 3.0], [10, 30], signed=True)
    ([-0.5, 1.5], '')
    """
    if len(raw) < 2:
        return [1.0] * len(raw), ""
    why = "a weight is negative" if min(raw) < 0 and not signed else "the weights sum to zero" if sum(raw) == 0 else ""
    scores = [float(k) for k in n] if why else raw
    total = math.fsum(scores)
    return [score / total for score in scores], why


def capped(weights: Sequence[float], cap: float) -> list[float]:
    """Weights of which none is above `cap`. What is cut off goes to the others, in proportion to their weights. A cap
    below 1/m cannot be kept by m clients: it is 1/m.

    >>> capped([0.5, 0.25, 0.25], 0.4)
    [0.4, 0.3, 0.3]
    >>> capped([0.9, 0.1], 0.3)
    [0.5, 0.5]
    """
    cap, out = max(cap, 1 / len(weights)), list(weights)
    above: set[int] = set()
    while new := {i for i, weight in enumerate(out) if weight > cap and i not in above}:
        above |= new
        others = [i for i in range(len(out)) if i not in above]
        left, total = 1 - cap * len(above), math.fsum(weights[i] for i in others)
        for i in range(len(out)):
            share = weights[i] / total if total else 1 / max(1, len(others))
            out[i] = cap if i in above else left * share
    return out
