"""The contract: the axes of a method and their hooks.

A method is a composition of parts. A part is a frozen dataclass whose fields are its configuration; it derives from
one axis class (or several) and defines the hooks it needs. The engine looks up once which hooks a part defines: a hook
that is not defined costs nothing. A part keeps no hidden state: what must last is returned by a hook (`init_client`,
`after_training`) or assigned to `server.memory`, and the engine copies, stages, checkpoints and sends it.

Order of one round (docs/design.md has the table):

    server   broadcast · message_for · model_for
    client   init_client · hold_out · before_start · start · before_training
             each epoch: epoch_indices · update_mask
             each batch: logits · sample_weights · loss · gradient · after_clip · after_step
             after_training · personal_models · upload
    server   weights · combine · release · receive · step · evaluated

Parts are final: they are composed, never subclassed, and never import each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from undrift.contract.context import (
    Batch,
    Message,
    Plan,
    Problem,
    Replies,
    Server,
    Tree,
    add_scaled,
    copied,
    server_sum,
    stack_scaled,
)
from undrift.contract.declare import Declaration
from undrift.contract.job import Job
from undrift.contract.parameters import Range, check_parameters
from undrift.core.vector import Layout

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "AXES", "Batch", "Combine", "Job", "Objective", "Part", "Personalize", "Plan", "Private", "Problem", "Range", "Replies",
    "Sampling", "Server", "ServerUpdate", "Tree", "Upload", "Weighting", "add_scaled", "copied", "defines", "server_sum",
    "stack_scaled",
]  # fmt: skip


class Part:
    """What every part may do, whatever its axis."""

    axis: ClassVar[str] = ""
    # Of the task: "labels", "class_logits", "errors". Of the run:
    # "proxy", "features", "adapters", "gradient", "gradient_at", "sample_gradients", "effective_steps"
    needs: ClassVar[Sequence[str]] = ()
    measures: ClassVar[str] = ""  # "received" where a rule measures the received model
    ignores_weights: ClassVar[bool] = False  # a Combine that does not use the weights
    freezes: ClassVar[Sequence[str]] = ()  # shell patterns of parameters that are not trained with this part
    # Whether its hooks inside the epochs may be called for many clients in turn, batch by batch.
    lockstep: ClassVar[bool] = False
    protects: ClassVar[bool] = False  # its noise protects somebody, so at real sites nobody may be able to repeat it

    def passes(self, round: int) -> Sequence[str]:
        """The roles ("received", "trained") for which its hooks will ask `job.scored` in this round. In lock-step all
        clients of a stack then pass their data at once. Nothing else depends on it."""
        return ()

    def __post_init__(self) -> None:
        """Check the fields against their declarations, then `validate`."""
        if is_dataclass(self):
            check_parameters(self)
        self.validate()

    def validate(self) -> None:
        """Refuse (with `BadRequest`) values that do not go together; single fields are checked already."""

    @property
    def uplink(self) -> Declaration:
        """What travels from a client to the server: names of `after_training`'s message. In a deployment a reply has all of them."""
        return {}

    @property
    def downlink(self) -> Declaration:
        """What travels to a client: names of `broadcast` and `message_for` together."""
        return {}

    @property
    def linear(self) -> bool:
        """Whether its server hooks use nothing of the replies but sums of vectors with fixed factors, so that noise on the
        sums covers them."""
        return False

    @property
    def name(self) -> str:
        """The class's name in lower case."""
        return type(self).__name__.lower()

    @property
    def key(self) -> str:
        """`axis.name`: memory, state, messages, streams and notes are kept under it."""
        return f"{self.axis}.{self.name}"

    def resolve(self, plan: Plan) -> Self:
        """The same part with schedules that default to a fraction of the run turned into numbers."""
        return self

    def check(self, plan: Plan) -> Iterable[Problem]:
        """What speaks against this part in this run."""
        return ()

    def init_server(self, server: Server) -> Tree:
        """The server's memory before round 0."""
        return None

    def broadcast(self, server: Server) -> Message:
        """Down, the same for all clients."""
        return {}

    def message_for(self, server: Server, client: int) -> Message:
        """Down, for one client."""
        return {}

    def init_client(self, job: Job) -> Tree:
        """The state of a client that was never committed before."""
        return None

    def hold_out(self, job: Job) -> torch.Tensor:
        """Positions held out of training; draw them from `job.lasting(…)`, which does not know the round."""
        return torch.empty(0, dtype=torch.long)

    def before_training(self, job: Job, state: Any, server_message: Message) -> Any:
        """The scratch of this client in this round; it dies with the round. (A Personalize part makes its scratch in
        `before_start`.)"""
        return None

    def after_training(self, job: Job, scratch: Any, state: Any) -> tuple[Tree, Message]:
        """The new state, and the client's message to the server."""
        return state, {}

    def receive(self, server: Server, replies: Replies) -> None:
        """After aggregation: take what the clients sent into `server.memory` or `server.shelf`."""


class Sampling(Part):
    """Which samples count, and how much. Weights of several multiply; at most one may `pick`."""

    axis = "sampling"

    def epoch_indices(self, job: Job, scratch: Any, epoch: int) -> torch.Tensor:
        """The positions to train on in this epoch (0-based); the engine shuffles them."""
        raise NotImplementedError

    def batch_indices(self, job: Job, scratch: Any, epoch: int) -> Sequence[torch.Tensor]:
        """The positions of every batch of this epoch, where batches are not slices of a shuffled epoch."""
        raise NotImplementedError

    def sample_weights(self, batch: Batch, job: Job, scratch: Any) -> torch.Tensor:
        """One weight per sample, from the raw logits."""
        raise NotImplementedError

    def stack_weights(
        self, logits: torch.Tensor, counts: Sequence[int], scratches: Sequence[Any]
    ) -> torch.Tensor | None:
        """In lock-step, `sample_weights` of many clients at once: logits [clients, rows, classes], of which the first
        `counts` rows are a client's samples, and a weight for every row. None: call `sample_weights` client by client."""
        return None


class Objective(Part):
    """What is minimised locally. Terms of several add up."""

    axis = "objective"

    def logits(self, z: torch.Tensor, batch: Batch, job: Job, scratch: Any) -> torch.Tensor:
        """The logits that enter the loss; `batch.logits` are the raw ones."""
        raise NotImplementedError

    def loss(self, batch: Batch, job: Job, scratch: Any) -> torch.Tensor:
        """A term added to the mean loss (a scalar with a gradient)."""
        raise NotImplementedError

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: Any) -> None:
        """Change the flat gradient G in place. P may be read, not changed. Parts that need "gradient_at" come last: they
        get the gradient of the whole composition, and `batch.gradient_at(P)` gives it at another point."""
        raise NotImplementedError

    def after_clip(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: Any) -> None:
        """Change the flat gradient G in place after it is clipped: what acts like weight decay."""
        raise NotImplementedError

    def stack_scratches(self, scratches: Sequence[Any]) -> Any:
        """In lock-step, many clients' scratches as one tree, whose tensors have the clients as first axis. `logits`, `gradient`
        and `after_clip` are then called once for all of them, with z [clients, rows, classes] or P and G [clients, nP], this
        tree, and no job. `logits` gets a batch with logits, features and head of all clients, the others none. None: each
        client by itself."""
        return None

    def proximal_strength(self, job: Job) -> float:
        """μ of a proximal pull towards a fixed point: it shortens every later step (FedNova's a needs it)."""
        return 0.0


class Personalize(Part):
    """Where a client starts, what it trains beside, what it holds."""

    axis = "personalize"

    def before_start(self, job: Job, state: Any, server_message: Message) -> Any:
        """The scratch of this client in this round, before it is known where training begins. Also called when a client's
        models are evaluated on receipt (stage L1), so it must not depend on training."""
        return None

    def start(self, job: Job, scratch: Any) -> torch.Tensor:
        """The vector where training begins."""
        raise NotImplementedError

    def update_mask(self, job: Job, epoch: int) -> torch.Tensor | None:
        """A mask along P of what may move in this epoch (the *update* is masked, so momentum and decay rest too)."""
        raise NotImplementedError

    def after_step(self, batch: Batch, job: Job, scratch: Any) -> None:
        """What else is done with each batch (a second model)."""
        raise NotImplementedError

    def personal_models(self, job: Job, state: Any, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        """What the client uses: a mixture of outputs, [(weight, vector)]."""
        return [(1.0, trained)]


class Weighting(Part):
    """How much each client counts."""

    axis = "weighting"
    fixed: ClassVar[bool] = False  # the weights are known before the round: nothing of the data is in them
    signed: ClassVar[bool] = False  # weights may be negative, and are used so; only a plain mean takes them

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        """One raw number per reply, non-negative unless `signed`; the engine normalises them."""
        raise NotImplementedError


class Combine(Part):
    """From many vectors one."""

    axis = "combine"
    averages: ClassVar[bool] = False  # it is the weighted mean of the vectors and nothing else

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        """The combined vector of `replies.vectors`; the weights are non-negative and sum to one."""
        raise NotImplementedError

    def server_entries(self, layout: Layout) -> Iterable[str]:
        """Names of entries that only this rule changes. They travel to the clients and not back."""
        return ()


class ServerUpdate(Part):
    """From the combined vector the next global one."""

    axis = "server"

    def model_for(self, server: Server, client: int, position: int) -> torch.Tensor:
        """What this client receives, where clients get different models."""
        return server.vector

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        """The next global vector."""
        return mixed

    def evaluated(self, server: Server) -> torch.Tensor:
        """What stage G evaluates and what is exported; `server.vector` is the new global vector."""
        return server.vector


class Private(Part):
    """Which entries of the vector never leave a client."""

    axis = "private"

    def entries(self, layout: Layout) -> Iterable[str]:
        """Names of entries and integer buffers."""
        raise NotImplementedError


class Upload(Part):
    """What happens to an update between training and the wire, and to the sum before it is used. Several act in the order
    in which they are given."""

    axis = "upload"
    fixes_weights: ClassVar[bool] = False  # it needs weights that are known before the round
    keeps_empty_cohorts: ClassVar[bool] = False  # a round without a participant is a round, not drawn again

    def upload(
        self, job: Job, scratch: Any, state: Any, update: torch.Tensor, messages: dict[str, Message]
    ) -> tuple[Tree, torch.Tensor, dict[str, Message]]:
        """The new state, the update that leaves (trained − received, private entries 0) and the messages of all parts, by
        their keys. Called when all `after_training` have been."""
        raise NotImplementedError

    def pack(self, values: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """What travels instead of these values: arrays, and the values that the next part packs. Nothing is lost: `unpack`
        gives the same bits back."""
        raise NotImplementedError

    def unpack(self, arrays: dict[str, torch.Tensor], values: torch.Tensor, size: int) -> torch.Tensor:
        """The `size` values that `pack` was given. Whatever does not fit is `Malformed`."""
        raise NotImplementedError

    def packed(self, size: int) -> tuple[dict[str, tuple[torch.dtype, int]], int]:
        """The most that `pack` makes of `size` values: dtype and length of its arrays, and how many values are left."""
        raise NotImplementedError

    def release(self, server: Server, mixed: torch.Tensor, replies: Replies) -> tuple[torch.Tensor, Replies]:
        """The mixed vector and the replies as every later hook sees them. Called before `receive` and `step`, and for an
        empty cohort too where `keeps_empty_cohorts`."""
        raise NotImplementedError

    def privacy(self, plan: Plan, rounds: int) -> dict[str, Any] | None:
        """What is guaranteed after so many rounds: epsilon, delta, relation, assumed, uncovered."""
        return None


AXES: dict[str, type[Part]] = {
    axis.axis: axis for axis in (Sampling, Objective, Personalize, Weighting, Combine, ServerUpdate, Private, Upload)
}
SINGLE = ("personalize", "weighting", "combine", "server")


def axes_of(part: Part) -> list[str]:
    kind: type[Any] = type(part)
    if kind not in FILLED:
        FILLED[kind] = [name for name, axis in AXES.items() if issubclass(kind, axis)]
    return FILLED[kind]


FILLED: dict[type[Any], list[str]] = {}  # the axes of every kind of part: looking them up takes long


def defines(part: Part, hook: str) -> bool:
    """Whether a part defines a hook of an axis it fills. A *field* that shares a hook's name does not count."""
    key = (type(part), hook)
    if key not in KNOWN:
        KNOWN[key] = _defines(*key)
    return KNOWN[key]


KNOWN: dict[tuple[type[Part], str], bool] = {}


def _defines(kind: type[Part], hook: str) -> bool:
    if not any(hook in vars(axis) for axis in (Part, *AXES.values())):
        raise ValueError(f"no axis has a hook {hook!r}")
    for axis in (Part, *(axis for axis in AXES.values() if issubclass(kind, axis))):
        neutral = vars(axis).get(hook)
        if neutral is not None:
            own = getattr(kind, hook, None)
            if own is not neutral and callable(own) and own is not getattr(Part, hook, None):
                return True
    return False
