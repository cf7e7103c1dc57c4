"""A round at a server that does not trust its clients: no reply that passed every check ends the run.

A server hook may still fail on what was accepted, or leave a memory from which no next round can start. Restarting would
not help, because the same replies come again. So the round is tried without each client in turn. If leaving out exactly
one of them helps, that client is left out by name. Otherwise the round is skipped.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence

from undrift.contract.context import finite_tree
from undrift.core.errors import RunFailed
from undrift.round.orders import Order, Reply
from undrift.round.server import ServerRound
from undrift.store.server_state import ServerState

OpenRound = Callable[[ServerState], ServerRound]
Attempt = tuple[ServerRound, ServerState]


def careful_round(
    open_round: OpenRound, state: ServerState, orders: Sequence[Order], answers: Sequence[Reply]
) -> Attempt:
    """The round and the state after it. The parts' errors become events."""
    try:
        return attempt(open_round, state, orders, answers)
    except Exception as error:
        reraise_our_own(error)
        traceback.print_exc(file=sys.stderr)
        name = type(error.__cause__ or error).__name__
    without = []
    for reply in answers:
        try:
            without.append((reply, attempt(open_round, state, orders, [a for a in answers if a is not reply])))
        except Exception as error:
            reraise_our_own(error)
    if len(without) == 1:
        ((reply, (server_round, after)),) = without
        detail = f"with the reply of client {reply.client} the server's part raises {name}; it is left out"
        server_round.events.append((state.round, reply.client, "exception", detail))
        return server_round, after
    server_round = open_round(state)
    return server_round, server_round.unchanged(
        "skipped", f"with these replies the server's part raises {name}; the model stays as it is"
    )


def attempt(open_round: OpenRound, state: ServerState, orders: Sequence[Order], answers: Sequence[Reply]) -> Attempt:
    """The round, if the next one can start from it."""
    server_round = open_round(state)
    after = server_round.next_state(orders, answers)
    staged = [server_round.memories, *(row for rows in server_round.rows.values() for row in rows.values())]
    if not all(map(finite_tree, staged)):
        raise ArithmeticError("a part's memory is not finite")
    next_round = open_round(after)
    broadcasts = next_round.broadcasts()
    for position, order in enumerate(orders):
        next_round.messages_for(broadcasts, order.client)
        next_round.model_for(order.client, position)
    return server_round, after


def reraise_our_own(error: Exception) -> None:
    """Raise again what no reply can cause: a full disk ends the run with its own sentence. What a part's hook raised is the
    cause of a `RunFailed`."""
    cause = error.__cause__ if isinstance(error, RunFailed) else error
    if cause is None or isinstance(cause, OSError | MemoryError):
        raise error
