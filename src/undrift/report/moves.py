"""Which samples changed sides between a client's surveys: notes that hold a set of positions, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undrift.report.traces import Trace

FEW = 10  # positions that are named in the terminal


@dataclass(frozen=True)
class Move:
    """What changed between two rounds in which a client was surveyed. Positions are those of its training data."""

    client: int | None
    before: int
    round: int
    joined: tuple[int, ...]
    left: tuple[int, ...]


def moves(values: dict[int, dict[int | None, Any]]) -> list[Move]:
    """From the sets of {round: {client: positions}}, the changes from each survey of a client to its next.

    >>> moves({0: {3: [1, 2]}, 4: {3: [2, 5]}})
    [Move(client=3, before=0, round=4, joined=(5,), left=(1,))]
    """
    last: dict[int | None, tuple[int, set[int]]] = {}
    found = []
    for round, clients in sorted(values.items()):
        for client, positions in clients.items():
            now = set(positions)
            if client in last:
                before, then = last[client]
                found.append(Move(client, before, round, tuple(sorted(now - then)), tuple(sorted(then - now))))
            last[client] = round, now
    return found


def members_text(trace: Trace) -> str:
    """The number of members over the rounds, and one line per change."""
    from undrift.report.traces import sparkline

    sizes = [len(positions) for _, clients in sorted(trace.values.items()) for positions in clients.values()]
    lines = [f"{sparkline(sizes, 30)}  {sizes[0]} → {sizes[-1]} samples"]
    for move in moves(trace.values):
        lines.append(f"round {move.before} → {move.round}: joined {named(move.joined)}; left {named(move.left)}")
    return "\n".join(lines)


def named(positions: Sequence[int]) -> str:
    """How many, and the first of them."""
    if not positions:
        return "none"
    return f"{len(positions)} ({', '.join(map(str, positions[:FEW]))}{', …' * (len(positions) > FEW)})"
