"""Everything one run's record can show, as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undrift.evaluate.views import protocols
from undrift.experiment.tables import legend, newcomers_line, stage_table
from undrift.methods import scores
from undrift.report import clients, pictures
from undrift.report.plots import Rows, client_bars


def sections(name: str, rows: Rows, summary: dict[str, Any], thresholds: Sequence[float]) -> list[tuple[str, Any]]:
    """(id, figure or table); what was not recorded is left out."""
    found: list[tuple[str, Any]] = [
        ("table", stage_table([summary])),
        ("legend", legend()),
        ("stages", clients.bands(rows)),
    ]
    if newcomers := newcomers_line(summary):
        found.append(("unseen", newcomers))
    one = [(name, rows)]
    found += [
        ("scatter-l1", clients.trade_off(one, "L1")), ("scatter-l2", clients.trade_off(one, "L2")),
        ("clients", client_bars(one)),
        *((f"below-{epsilon:g}".replace(".", "-"), clients.below(one, epsilon)) for epsilon in thresholds[-1:]),
        ("weights", clients.weights(rows)), ("protocols", protocols(rows, thresholds)),
    ]  # fmt: skip
    if rows("SELECT 1 FROM metrics WHERE metric='drift' LIMIT 1"):
        found.append(("drift", clients.drift(rows)))
    optional = [
        ("confusion", pictures.confusion(rows)), ("landscape", pictures.landscape(rows)),
        ("embedding", pictures.embedding(rows)),
        ("gradients", pictures.numbers(rows, "gradients at the start of a round", GRADIENTS)),
        ("sharpness", pictures.numbers(rows, "sharpness, features, objective", OTHERS)),
        ("ood", pictures.numbers(rows, "telling another data set apart", [f"auroc:{score}" for score in scores.SCORES])),
    ]  # fmt: skip
    return found + [(place, figure) for place, figure in optional if figure is not None]


GRADIENTS = ("gradient_norm_squared", "sampling_gap", "cohort_gap", "alignment", "alignment_code")
OTHERS = ("hessian_top", "effective_rank", "objective", "bound_covers", "sharpness_rise")
