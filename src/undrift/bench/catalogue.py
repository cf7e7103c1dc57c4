"""All methods and parts as `undrift methods` prints them: their descriptions and their counted costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from undrift.bench import costs
from undrift.methods import describe as descriptions
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED


def published() -> list[dict[str, Any]]:
    return [describe(name) for name in PUBLISHED]


def parts() -> list[dict[str, Any]]:
    return [describe(f"{axis}.{name}") for axis, table in part_tables().items() for name in table]


def describe(name: str) -> dict[str, Any]:
    """Description and costs of a published name, an `axis.part`, or a part's name alone."""
    found = descriptions.describe(name)
    return {**found, "costs": asdict(costs.count(descriptions.EXAMPLES.get(found["name"], found["name"])))}
