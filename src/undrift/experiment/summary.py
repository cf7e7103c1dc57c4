"""The essence of a run as one object: what `--json` prints, a contract for scripts (DESIGN 7)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from undrift.store.record import Record

NOT_FAILURES = ("resumed", "weights", "stopped", "joined")


def summary(
    record: Record, run: str | None, method: str, evaluated: torch.Tensor, thresholds: Sequence[float]
) -> dict[str, Any]:
    rounds, seconds = record.all("SELECT COUNT(*), COALESCE(SUM(seconds), 0) FROM rounds")[0]
    stages: dict[str, Any] = {"G": global_stage(record)}
    for stage in ("L1", "L2"):
        stages[stage] = client_stage(record, stage, thresholds)
    newcomers = unseen(record)
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
        "accuracy": stages["G"].get("accuracy") if stages["G"] else None,
        "stages": stages,
        **({"unseen": newcomers} if newcomers else {}),
        "failures": [dict(zip(("round", "client", "kind", "detail"), row)) for row in failures],
        "model_sha256": sha256(evaluated),
    }


def sha256(vector: torch.Tensor) -> str:
    """Of the vector's bytes, P then F, little-endian float32."""
    return hashlib.sha256(vector.detach().cpu().contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def global_stage(record: Record) -> dict[str, Any] | None:
    """Stage G at its last round; None where no global model exists (private entries)."""
    rows = record.all(
        "SELECT metric, value FROM metrics WHERE stage='G' AND data='global' AND client IS NULL AND round="
        "(SELECT MAX(round) FROM metrics WHERE stage='G' AND data='global')"
    )
    found: dict[str, Any] = {metric: clean(value) for metric, value in rows if not metric.startswith("recall:")}
    recall = {metric.removeprefix("recall:"): clean(value) for metric, value in rows if metric.startswith("recall:")}
    domains = record.all(
        "SELECT data, value FROM metrics WHERE stage='G' AND data LIKE 'domain:%' AND metric='accuracy' AND client IS NULL "
        "AND round=(SELECT MAX(round) FROM metrics WHERE stage='G' AND data='global') ORDER BY data"
    )
    if found:
        found["recall"] = recall
    if domains:
        found["domains"] = {data.removeprefix("domain:"): clean(value) for data, value in domains}
    validation = record.all(
        "SELECT value FROM metrics WHERE stage='G' AND data='validation' AND metric='accuracy' ORDER BY round DESC LIMIT 1"
    )
    if found and validation:
        found["validation_accuracy"] = clean(validation[0][0])
    return found or None


def client_stage(record: Record, stage: str, thresholds: Sequence[float]) -> dict[str, Any] | None:
    """A client stage at its last judged round, over the clients judged there."""
    rows = record.all(
        "SELECT client, data, value FROM metrics WHERE stage=?1 AND metric='accuracy' AND round="
        "(SELECT MAX(round) FROM metrics WHERE stage=?1)",
        (stage,),
    )
    if not rows:
        return None
    own = {client: value for client, data, value in rows if data == "own"}
    whole = {client: value for client, data, value in rows if data == "global"}
    local, everywhere = spread(list(own.values())), spread(list(whole.values()))
    return {
        "acc_local": local,
        "acc_global": everywhere,
        "acc": None if local["mean"] is None or everywhere["mean"] is None else local["mean"] + everywhere["mean"],
        "rho": {f"{epsilon:g}": sum(value > epsilon for value in own.values()) for epsilon in thresholds},
        "clients": len(whole or own),
        "without_slice": len(set(whole) - set(own)),
    }


def unseen(record: Record) -> dict[str, Any] | None:
    """Newcomers on their own slices at the last judged round: with the global model (G), and after fine-tuning it (L2)."""
    found = {}
    for stage in ("G", "L2"):
        rows = record.all(
            "SELECT value FROM metrics WHERE stage=?1 AND data='unseen' AND metric='accuracy' AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage=?1 AND data='unseen')",
            (stage,),
        )
        if rows:
            found[stage] = {**spread([value for (value,) in rows]), "clients": len(rows)}
    return found or None


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, std, and the means of the worst and the best tenth (at least one client)."""
    if not len(values):
        return {"mean": None, "std": None, "worst_decile": None, "best_decile": None}
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    tenth = max(1, math.ceil(len(ordered) / 10))
    return {
        "mean": float(ordered.mean()), "std": float(ordered.std()),
        "worst_decile": float(ordered[:tenth].mean()), "best_decile": float(ordered[-tenth:].mean()),
    }  # fmt: skip


def clean(value: float) -> float | None:
    return value if value is not None and math.isfinite(value) else None
