"""What the methods of a race are compared by: their global model, or what every client uses, on the client's own data."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.core.headline import Headline
from undrift.experiment.tables import headline_value
from undrift.store.record import headline_of, rows_of

VALIDATION = "SELECT value FROM metrics WHERE stage=? AND data='validation' AND metric=? AND round=?"


@dataclass(frozen=True)
class Criterion:
    """A stage, and the test data that fresh seeds are judged on. Heats take the same stage on validation data."""

    stage: str = "G"
    data: str = "global"

    @property
    def of_clients(self) -> bool:
        """Whether every client has a value, so that the mean over clients counts."""
        return self.stage != "G"

    def settings(self, rounds: Sequence[int]) -> dict[str, Any]:
        """Options of runs that are scored after these rounds. The global model is evaluated after each anyway."""
        return {"evaluate_on": "validation", "evaluate_at": tuple(rounds)} if self.of_clients else {}

    def score(self, place: Path, rounds: int) -> float:
        """The headline of a run on validation data after so many rounds, the larger the better; −∞ where it is no number."""
        headline = headline_of(functools.partial(rows_of, place))
        values = [value for (value,) in rows_of(place, VALIDATION, (self.stage, headline.name, rounds - 1))]
        if not values or any(value is None or not math.isfinite(value) for value in values):
            return -math.inf
        return headline.sign * math.fsum(values) / len(values)

    def value(self, row: Mapping[str, Any]) -> float | None:
        """The headline of a finished run on test data, from its row."""
        if not self.of_clients:
            return headline_value(row)
        found: float | None = ((row["stages"].get(self.stage) or {}).get("acc_local") or {}).get("mean")
        return found

    def title(self, headline: Headline) -> str:
        """The name of the value, as the columns of tables have it."""
        return f"{self.stage} {headline.title}(L)" if self.of_clients else headline.title

    def sentence(self, headline: Headline) -> str:
        """What the answer says about it; nothing where it is the global model, as everywhere else."""
        if not self.of_clients:
            return ""
        return (
            "Methods were compared by what a client uses after it received the model, on the client's own data "
            f"({self.title(headline)}, mean over clients), not by their global model."
        )


GLOBAL_MODEL, CLIENTS_MODELS = Criterion(), Criterion("L1", "own")


def criterion_for(personal: str) -> Criterion:
    """By whether the user wants personal models: no, yes or either."""
    return GLOBAL_MODEL if personal == "no" else CLIENTS_MODELS


def criterion_of(answer: Mapping[str, Any] | None) -> Criterion:
    """That of an advise.json. One that does not say it was written when there was only the global model."""
    return Criterion(**((answer or {}).get("compared_by") or {}))
