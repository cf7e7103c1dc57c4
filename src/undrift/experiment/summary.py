"""The summary of a run: the object that `--json` prints. Scripts rely on it (docs/formats.md)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.store.record import Record, client_names, headline_of

if TYPE_CHECKING:
    import torch

NOT_FAILURES = ("resumed", "weights", "stopped", "joined")


def summary(
    record: Record, run: str | None, method: str, evaluated: torch.Tensor, thresholds: Sequence[float]
) -> dict[str, Any]:
    """Rounds, seconds, headline and all stages at their last evaluated rounds, failures, and the model's hash."""
    rounds, seconds = record.all("SELECT COUNT(*), COALESCE(SUM(seconds), 0) FROM rounds")[0]
    stages = stages_of(record, thresholds)
    headline = headline_of(record.all)
    unseen_clients, by_name, names = unseen(record), sites(record.all), client_names(record.all)
    places = ",".join("?" * len(NOT_FAILURES))
    failures = record.all(
        f"SELECT round, client, kind, detail FROM events WHERE kind NOT IN ({places}) ORDER BY round, client",
        NOT_FAILURES,
    )
    return {
        "run": run,
        "method": method,
        "rounds": rounds,
        "seconds": seconds,
        "accuracy": (stages["G"] or {}).get("accuracy"),
        "headline": headline.as_json((stages["G"] or {}).get(headline.name)),
        "stages": stages,
        **({"unseen": unseen_clients} if unseen_clients else {}),
        **({"privacy": statement} if (statement := privacy(record.all)) else {}),
        **({"sites": by_name} if by_name else {}),
        "failures": [
            dict(zip(("round", "client", "kind", "detail"), row)) | ({"name": names[row[1]]} if row[1] in names else {})
            for row in failures
        ],
        "model_sha256": sha256(evaluated),
    }


def stages_of(record: Record, thresholds: Sequence[float]) -> dict[str, Any]:
    """Every stage at its last evaluated round."""
    return {
        "G": global_stage(record),
        **{stage: client_stage(record, stage, thresholds) for stage in ("L1", "L2")},
    }


def sites(query: Callable[..., list[tuple[Any, ...]]]) -> dict[str, dict[str, float]]:
    """By the name of each client that has one: the headline on its own test slice, {"L1": …, "L2": …}, when it was last
    evaluated."""
    names = client_names(query)
    found: dict[str, dict[str, float]] = {name: {} for name in names.values()}
    for client, stage, value, _ in query(LAST_OF_CLIENTS, (headline_of(query).name,)) if names else ():
        if client in names and value is not None and not math.isnan(value):
            found[names[client]][stage] = value
    return found


LAST_OF_CLIENTS = (
    "SELECT client, stage, value, MAX(round) FROM metrics WHERE data='own' AND metric=? AND client IS NOT NULL "
    "AND stage IN ('L1', 'L2') GROUP BY client, stage"
)


def nothing_learned(query: Callable[..., list[tuple[Any, ...]]]) -> str | None:
    """One sentence if every client was left out in every round, so that the model is the initial one. None otherwise."""
    orders, rounds = query("SELECT COALESCE(SUM(json_array_length(cohort)), 0), COUNT(*) FROM rounds")[0]
    places = ",".join("?" * len(NOT_FAILURES))
    lost = query(
        f"SELECT DISTINCT round, client FROM events WHERE client IS NOT NULL AND kind NOT IN ({places})", NOT_FAILURES
    )
    if not orders or len(lost) < orders:
        return None
    kind, detail = query("SELECT kind, detail FROM events WHERE client IS NOT NULL ORDER BY round, client LIMIT 1")[0]
    return (
        f"every client was left out in all {rounds} rounds, so the model is still the initial one; the first one because "
        f"of {kind}: {detail}"
    )


def sha256(vector: torch.Tensor) -> str:
    """The hash of the vector's bytes: P then F, little-endian float32."""
    return hashlib.sha256(vector.detach().cpu().contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def global_stage(record: Record) -> dict[str, Any] | None:
    """Stage G at its last evaluated round; None if there is no global model (private entries)."""
    headline = headline_of(record.all)
    rows = record.all(
        "SELECT metric, value FROM metrics WHERE stage='G' AND data='global' AND client IS NULL AND round="
        "(SELECT MAX(round) FROM metrics WHERE stage='G' AND data='global')"
    )
    stage: dict[str, Any] = {metric: clean(value) for metric, value in rows if not metric.startswith("recall:")}
    recall = {metric.removeprefix("recall:"): clean(value) for metric, value in rows if metric.startswith("recall:")}
    domains = record.all(
        "SELECT data, value FROM metrics WHERE stage='G' AND data LIKE 'domain:%' AND metric=? AND client IS NULL "
        "AND round=(SELECT MAX(round) FROM metrics WHERE stage='G' AND data='global') ORDER BY data",
        (headline.name,),
    )
    if recall or "accuracy" in stage:
        stage["recall"] = recall
    if domains:
        stage["domains"] = {data.removeprefix("domain:"): clean(value) for data, value in domains}
    validation = record.all(
        "SELECT value FROM metrics WHERE stage='G' AND data='validation' AND metric=? ORDER BY round DESC LIMIT 1",
        (headline.name,),
    )
    if stage and validation:
        stage[f"validation_{headline.name}"] = clean(validation[0][0])
    return stage or None


def client_stage(record: Record, stage: str, thresholds: Sequence[float]) -> dict[str, Any] | None:
    """A client stage at its last evaluated round, over the clients evaluated there: `acc_…` is the headline's."""
    headline = headline_of(record.all)
    rows = record.all(
        "SELECT client, data, value FROM metrics WHERE stage=? AND metric=? AND round="
        "(SELECT MAX(round) FROM metrics WHERE stage=?)",
        (stage, headline.name, stage),
    )
    if not rows:
        return None
    own = {client: value for client, data, value in rows if data == "own"}
    whole = {client: value for client, data, value in rows if data == "global"}
    acc_local, acc_global = (spread(list(values.values()), headline.lower) for values in (own, whole))
    total = None
    if acc_local["mean"] is not None and acc_global["mean"] is not None:
        total = acc_local["mean"] + acc_global["mean"]
    return {
        "acc_local": acc_local,
        "acc_global": acc_global,
        "acc": total,
        "rho": {
            f"{epsilon:g}": sum(headline.sign * (value - epsilon) > 0 for value in own.values())
            for epsilon in thresholds
        },
        "clients": len(whole or own),
        "without_slice": len(set(whole) - set(own)),
    }


def unseen(record: Record) -> dict[str, Any] | None:
    """Unseen clients on their own slices at the last evaluated round: with the global model (G), after fine-tuning (L2)."""
    stages, headline = {}, headline_of(record.all)
    for stage in ("G", "L2"):
        rows = record.all(
            "SELECT value FROM metrics WHERE stage=? AND data='unseen' AND metric=? AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage=? AND data='unseen')",
            (stage, headline.name, stage),
        )
        if rows:
            stages[stage] = {**spread([value for (value,) in rows], headline.lower), "clients": len(rows)}
    return stages or None


def privacy(query: Callable[..., list[tuple[Any, ...]]]) -> dict[str, Any] | None:
    """What is guaranteed after the recorded rounds, where an upload part counts it: ε, δ, the relation, what ε does not cover."""
    statement = query("SELECT value FROM notes WHERE name = 'privacy' ORDER BY round DESC LIMIT 1")
    if not statement:
        return None
    spent = query("SELECT value FROM notes WHERE name = 'epsilon' ORDER BY round DESC LIMIT 1")
    return {"epsilon": json.loads(spent[0][0]), **json.loads(json.loads(statement[0][0]))}


def spread(values: Sequence[float], lower: bool = False) -> dict[str, float | None]:
    """Mean, std, and the means of the worst and the best tenth of the clients (at least one client). `lower` values are
    better ones."""
    if not len(values):
        return {"mean": None, "std": None, "worst_decile": None, "best_decile": None}
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    tenth = max(1, math.ceil(len(ordered) / 10))
    least, most = float(ordered[:tenth].mean()), float(ordered[-tenth:].mean())
    return {
        "mean": float(ordered.mean()),
        "std": float(ordered.std()),
        "worst_decile": most if lower else least,
        "best_decile": least if lower else most,
    }


def clean(value: float | None) -> float | None:
    """None for what JSON cannot hold: NaN and infinities."""
    return value if value is not None and math.isfinite(value) else None
