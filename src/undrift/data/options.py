"""Data sets with options: `shapes(clients=50)`, `shakespeare(roles=100)`."""

from __future__ import annotations

from undrift.core.errors import BadRequest


def at_least(data: str, name: str, value: object, least: int) -> None:
    """Refuse an option that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequest(f"{name} of {data} must be a whole number of at least {least}, not {value!r}")
