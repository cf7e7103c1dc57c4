"""Orders that only evaluate. They commit nothing: they carry no `keep_round`, and their replies carry no state."""

from __future__ import annotations

from collections.abc import Sequence

from undrift.contract.context import Message
from undrift.evaluate.client import spans
from undrift.round.orders import Order
from undrift.store.server_state import ServerState

BOTH = ("own", "global")


def of_spans(state: ServerState, round: int, data: str, size: int) -> list[Order]:
    """The evaluated global model on a whole test set, span by span."""
    return [
        Order(
            "evaluate", round, -1 - place, state.evaluated, state.integers, span=span, data=data, size=span[1] - span[0]
        )
        for place, span in enumerate(spans(size))
    ]


def of_personal_models(
    state: ServerState, messages: dict[int, dict[str, Message]], evaluate_on: Sequence[str] = BOTH, size: int = 0
) -> list[Order]:
    """What clients would use on receiving the evaluated vector (stage L1); `messages` by client."""
    return [
        Order(
            "personalize",
            state.round,
            client,
            state.evaluated,
            state.integers,
            message,
            state.versions.get(("state", client)),
            evaluate_on=tuple(evaluate_on),
            size=size,
        )
        for client, message in messages.items()
    ]


def of_last_trained(
    state: ServerState, clients: Sequence[int], evaluate_on: Sequence[str] = BOTH, size: int = 0
) -> list[Order]:
    """What absent clients use: the model each trained last (stage L2)."""
    return [
        Order(
            "personalize",
            state.round,
            client,
            state.evaluated,
            state.integers,
            {},
            state.versions["state", client],
            evaluate_on=tuple(evaluate_on),
            data="held",
            size=size,
        )
        for client in clients
    ]


def of_newcomers(state: ServerState, sizes: dict[int, int]) -> list[Order]:
    """Clients that never train with the others fine-tune the evaluated model; `sizes` by client."""
    return [
        Order("fine_tune", state.round, client, state.evaluated, state.integers, size=size)
        for client, size in sizes.items()
    ]
