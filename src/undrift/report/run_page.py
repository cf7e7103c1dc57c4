"""All tables and figures of one run, as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undrift.core.headline import Headline
from undrift.evaluate.views import Query, protocols
from undrift.experiment.summary import NOT_FAILURES, privacy
from undrift.experiment.tables import legend, privacy_lines, stage_table, unseen_line
from undrift.report import clients, pictures
from undrift.report.plots import client_bars, round_times
from undrift.store.record import client_names


def sections(name: str, query: Query, summary: dict[str, Any], thresholds: Sequence[float]) -> list[tuple[str, Any]]:
    """(id, figure or table) of everything that was recorded."""
    shown: list[tuple[str, Any]] = [
        ("table", stage_table([summary])),
        ("legend", legend(Headline.of(summary))),
        ("stages", clients.bands(query)),
    ]
    if unseen := unseen_line(summary):
        shown.append(("unseen", unseen))
    if lines := privacy_lines({"privacy": privacy(query)}):
        shown.append(("privacy", "\n".join(lines)))
    run = [(name, query)]
    shown += [
        ("scatter-l1", clients.trade_off(run, "L1")),
        ("scatter-l2", clients.trade_off(run, "L2")),
        ("clients", client_bars(run)),
        *((f"below-{epsilon:g}".replace(".", "-"), clients.below(run, epsilon)) for epsilon in thresholds[-1:]),
        ("weights", clients.weights(query)),
        ("protocols", protocols(query, thresholds)),
    ]
    if (times := round_times(query)) is not None:
        shown.append(("times", times))
    if left := left_out(query):
        shown.append(("left-out", left))
    if query("SELECT 1 FROM metrics WHERE metric='drift' LIMIT 1"):
        shown.append(("drift", clients.drift(query)))
    optional = [
        ("confusion", pictures.confusion(query)),
        ("landscape", pictures.landscape(query)),
        ("embedding", pictures.embedding(query)),
        ("gradients", pictures.numbers(query, "gradients at the start of a round", GRADIENTS)),
        ("sharpness", pictures.numbers(query, "sharpness, features, objective", OTHERS)),
        (
            "ood",
            pictures.numbers(query, "detection of another data set", detection_scores(query)),
        ),
    ]
    return shown + [(place, figure) for place, figure in optional if figure is not None]


def left_out(query: Query) -> list[list[str]]:
    """Who was left out, how often, why and when last; empty if nobody was. At most the fifty that it happened to most."""
    places = ",".join("?" * len(NOT_FAILURES))
    rows = query(
        "SELECT client, kind, COUNT(*), MAX(round), detail FROM events WHERE client IS NOT NULL AND kind NOT IN "
        f"({places}) GROUP BY client, kind ORDER BY COUNT(*) DESC, client LIMIT 50",
        NOT_FAILURES,
    )
    names = client_names(query)
    lines = [[names.short(c), kind, str(count), str(last), str(detail)[:200]] for c, kind, count, last, detail in rows]
    return [["left out", "why", "times", "last in round, from 0", "detail"], *lines] if lines else []


GRADIENTS = ("gradient_norm_squared", "sampling_gap", "cohort_gap", "alignment", "alignment_code")
OTHERS = ("hessian_top", "effective_rank", "objective", "bound_covers", "sharpness_rise")


def detection_scores(query: Query) -> list[str]:
    """The metrics of the confidence scores that the diagnostic `ood` recorded."""
    return [
        metric
        for (metric,) in query(
            "SELECT metric FROM metrics WHERE metric LIKE 'auroc:%' GROUP BY metric ORDER BY MIN(rowid)"
        )
    ]
