"""Render docs/privacy.md: what two ways to draw cohorts cost (by the accountant), which methods ε covers (by asking each of
them), and the example (from docs/privacy.jsonl).

    .venv/bin/python docs/make_privacy.py [--figure]

`--figure` also writes docs/privacy.png, which needs chromium. A test renders the tables again and compares.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from undrift.study.verdict import listed
from undrift.study.verdict import shown as verdict_text

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "privacy.md"
RESULTS = DOCS / "privacy.jsonl"


def rates() -> str:
    """ε of everybody in every round beside that of a Poisson cohort."""
    from undrift.methods.upload.accountant import Mechanism, epsilon

    clients, rounds, delta = 1000, 100, 1e-5
    all_, tenth = (
        epsilon(Mechanism(1.0, cohorts, cohort, clients), delta, rounds)
        for cohorts, cohort in (("all", clients), ("poisson", clients / 10))
    )
    return (
        f"With noise z = 1, {rounds} rounds and δ = 1e-5, everybody in every round costs ε = {all_:.1f}, and a Poisson cohort of\n"
        f"a tenth costs {tenth:.2f}. So use `probability(q)` where you can.\n"
    )


def coverage() -> list[tuple[str, str]]:
    """(method, what dp says to it), on a tiny federation and a network without BatchNorm."""
    from undrift.core.errors import BadRequest
    from undrift.experiment.options import from_keywords
    from undrift.experiment.setup import prepare
    from undrift.methods.published import PUBLISHED
    from undrift.testing import QUICK, tiny

    federation, rows = tiny(clients=8), []
    for name in PUBLISHED:
        options = {**QUICK, "model": federation.model, "method": name, "upload": "dp(noise=1)"}
        try:
            prepare(from_keywords(options), federation)
            rows.append((name, "covered"))
        except BadRequest as refusal:
            sentence = str(refusal)
            if "--uncovered accept" in sentence:
                names = sentence.removeprefix("dp does not cover ").partition("; add --uncovered")[0]
                rows.append((name, f"not covered: {names}"))
            else:
                rows.append((name, f"refused: {sentence}"))
    return rows


def methods_table() -> str:
    rows = coverage()
    counts = {word: sum(how.startswith(word) for _, how in rows) for word in ("covered", "not covered", "refused")}
    head = (
        f"Of {len(rows)} published names {counts['covered']} are covered, {counts['not covered']} need `--uncovered accept`, and "
        f"{counts['refused']} are refused.\n\n| method | under `dp` |\n|---|---|\n"
    )
    covered = ", ".join(f"`{name}`" for name, how in rows if how == "covered")
    return (
        head
        + f"| {covered} | covered |\n"
        + "".join(f"| `{name}` | {how.replace('|', chr(92) + '|')} |\n" for name, how in rows if how != "covered")
    )


def results() -> dict[float | None, list[dict]]:
    """Runs by the ε that was asked for, from no noise to much."""
    by_epsilon: dict[float | None, list[dict]] = {}
    for row in map(json.loads, RESULTS.read_text().splitlines()):
        by_epsilon.setdefault(row["asked"], []).append(row)
    return dict(sorted(by_epsilon.items(), key=lambda item: -(item[0] or 1e9)))


def example_table() -> str:
    runs = results()
    first = next(iter(runs.values()))[0]
    settings, dates = first["settings"], sorted({row["date"] for rows in runs.values() for row in rows})
    lines = [
        f"`{first['command']}`, {first['machine']}, {dates[0]}{'' if len(dates) == 1 else ' to ' + dates[-1]}. "
        f"{settings['clients']:,} clients, {settings['selection']}, {settings['model']}, clip {settings['clip']}, "
        f"{first['rounds']} rounds.",
        "",
        "| ε (δ = 1e-5) | noise z | test accuracy, % | seeds | against no noise |",
        "|---:|---:|---:|---:|---:|",
    ]
    found = compared(runs)
    for asked, rows in runs.items():
        accuracies = [100 * row["accuracy"] for row in rows]
        spread = f" ± {statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
        noise = rows[0]["privacy"]["noise"]
        cells = [shown(asked), f"{noise:.3g}", f"{statistics.mean(accuracies):.1f}{spread}", str(len(rows))]
        lines.append(f"| {' | '.join([*cells, verdict_text(found[asked], 1) if asked in found else ''])} |")
    return "\n".join([*lines, "", concluded(found)]) + "\n"


def shown(asked: float | None) -> str:
    return "∞" if asked is None else f"{asked:g}"


def compared(runs: dict[float | None, list[dict]]) -> dict[float | None, Any]:
    """By ε, the verdict about the paired difference to the runs without noise: 95 % intervals, corrected for their number."""
    from undrift.study.verdict import Question, verdicts

    def by_seed(asked: float | None) -> dict[int, float]:
        return {row["seed"]: 100 * row["accuracy"] for row in runs.get(asked, [])}

    without = by_seed(None)
    gaps = {
        asked: [value - without[seed] for seed, value in by_seed(asked).items() if seed in without]
        for asked in runs if asked is not None
    }  # fmt: skip
    return dict(zip(gaps, verdicts([Question("", values) for values in gaps.values()])))


def concluded(found: dict[float | None, Any]) -> str:
    """One sentence: at which ε the noise costs accuracy, and at which that is open."""
    words = {
        "false": "costs accuracy",
        "true": "has the higher accuracy",
        "open": "makes no difference that these seeds can show",
    }
    parts = []
    for outcome, said in words.items():
        which = [shown(asked) for asked, verdict in found.items() if verdict.outcome == outcome]
        if which:
            parts.append(f"at ε = {listed(which)} the noise {said}")
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]} (95 % intervals of the paired differences, corrected for {len(found)} values of ε)."


def rendered(text: str) -> str:
    for name, make in (("rates", rates), ("methods", methods_table), ("example", example_table)):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        body = make()
        text = pattern.sub(lambda match, body=body: match.group(1) + body + match.group(2), text)
    return text


def figure() -> None:
    """docs/privacy.png: accuracy over ε, one point per seed and the mean."""
    import tempfile

    import plotly.graph_objects as go

    from undrift.report.picture import picture

    runs = {asked: rows for asked, rows in results().items() if asked is not None}
    without = [100 * row["accuracy"] for row in results().get(None, [])]
    means = [(asked, statistics.mean(100 * row["accuracy"] for row in rows)) for asked, rows in sorted(runs.items())]
    points = [(row["privacy"]["epsilon"], 100 * row["accuracy"]) for rows in runs.values() for row in rows]
    plot = go.Figure(
        [
            go.Scatter(x=[x for x, _ in means], y=[y for _, y in means], mode="lines", name="mean", line={"color": "#0072b2"}),
            go.Scatter(x=[x for x, _ in points], y=[y for _, y in points], mode="markers", name="a seed",
                       marker={"color": "#0072b2", "size": 8}),
        ]
    )  # fmt: skip
    if without:
        plot.add_hline(y=statistics.mean(without), line_dash="dash", annotation_text="clipped, no noise")
    plot.update_layout(
        template="plotly_white", width=900, height=450, xaxis={"title": "ε after all rounds", "type": "log"},
        yaxis_title="test accuracy, %", title="Fashion-MNIST: accuracy against ε",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        plot.write_html(page)
        picture(page, DOCS / "privacy.png", (900, 470))


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
    if "--figure" in sys.argv:
        figure()
