"""The answer as a page, made from the content of advise.json: so the live page shows a race with the same code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.advice.criterion import criterion_of
from undrift.advice.findings import Diagnosis
from undrift.core.headline import Headline
from undrift.core.words import clock
from undrift.report import page, plots
from undrift.study.verdict import counted, signed

WIDE = 0.5  # of an interval that is not shown, in units of a share
OUTCOMES = {
    "leader": "leads", "kept": "goes on", "behind": "behind, by its interval", "failed": "failed",
    "budget": "dropped for budget",
}  # fmt: skip


def write(answer: Mapping[str, Any], path: Path) -> Path:
    """Write the page of an answer (`Advice.as_json`)."""
    page.write(path, title(answer), sections(answer))
    return path


def title(answer: Mapping[str, Any]) -> str:
    data = Path(str(answer["options"].get("data", "a federation"))).stem
    return f"Which method for {data}"


def sections(answer: Mapping[str, Any], numbers: Mapping[str, int] | None = None) -> list[page.Section]:
    """Answer, evidence, heats, diagnosis: everything that is known so far. `numbers`: of the contenders, which choose their
    colours; by default in their order."""
    headline = headline_of(answer)
    found: list[page.Section] = [("answer", ("html", boxed(answer)), "Answer")]
    if answer["recommended"]:
        found.append(("command", ("pre", answer["recommended"]["command"])))
    if answer["difference"]:
        found.append(("difference", difference(answer, headline), "Against plain averaging, on fresh seeds"))
    if answer["would_change"]:
        found.append(
            ("change", [["what would change the answer"], *[[line] for line in answer["would_change"]]], "What is open")
        )
    if answer["heats"]:
        found += [
            ("heats", heats_figure(answer, headline, numbers or {}), "The race, on validation data"),
            ("standings", standings(answer, headline), "Every contender"),
        ]
    found.append(("diagnosis", findings(answer), "What was measured"))
    found += diagnosis_figures(answer)
    if answer["left_out"]:
        found.append(("left-out", [["method", "why it was left out"], *answer["left_out"]], "Left out"))
    found.append(("how", about(answer), "How it was found"))
    return found


def headline_of(answer: Mapping[str, Any]) -> Headline:
    return Headline(**answer["headline"])


def boxed(answer: Mapping[str, Any]) -> str:
    """The sentences of the answer, the first one large."""
    import html

    first, *others = [html.escape(sentence) for sentence in answer["sentences"]]
    state = "running" if answer["stopped"] or not answer["difference"] else "finished"
    more = f"<p>{' '.join(others)}</p>" if others else ""
    return f"<p class='state {state}' style='font-size:1.15rem'>{first}</p>{more}"


def difference(answer: Mapping[str, Any], headline: Headline) -> Any:
    """The paired difference of every fresh seed, and its interval."""
    found = answer["difference"]
    unit = ", in points" if headline.percent else ""
    seeds = [f"seed {number + 1}" for number in range(found["seeds"])]
    fig = plots.figure(
        f"{found['challenger']} − {found['plain']}: {criterion_of(answer).title(headline)}{unit}", "", "difference"
    )
    values = [headline.factor * value for value in found["values"]]
    fig.add_scatter(
        x=seeds, y=values, mode="markers", name="each fresh seed", marker={"size": 9, "color": plots.COLOURS[0]}
    )
    mean, low, high = (headline.factor * found[key] for key in ("estimate", "low", "high"))
    bar = {
        "type": "data", "symmetric": False, "array": [high - mean], "arrayminus": [mean - low], "width": 8, "thickness": 2,
    }  # fmt: skip
    fig.add_scatter(
        x=["typical, 95 % interval"], y=[mean], error_y=bar, mode="markers", name="typical difference and its interval",
        marker={"size": 12, "symbol": "diamond", "color": plots.COLOURS[2]},
    )  # fmt: skip
    fig.add_hline(y=0, line_width=1)
    fig.update_layout(hovermode="closest")
    return fig


def heats_figure(answer: Mapping[str, Any], headline: Headline, numbers: Mapping[str, int]) -> Any:
    """The mean of every contender in every heat it took part in. Those who left in the first heat are grey points."""
    heats = answer["heats"]
    paths: dict[str, list[tuple[int, float]]] = {}
    for heat in heats:
        for one in heat["standings"]:
            if one["mean"] is not None:
                paths.setdefault(f"{one['method']} lr={one['lr']:g}", []).append(
                    (heat["rounds"], headline.factor * one["mean"])
                )
    title = criterion_of(answer).title(headline)
    fig = plots.figure("mean over seeds, after the rounds of each heat", "rounds", f"validation {title}")
    gone = [(label, path[0]) for label, path in paths.items() if len(path) == 1 and path[0][0] == heats[0]["rounds"]]
    if gone and len(heats) > 1:
        fig.add_scatter(
            x=[at for _, (at, _) in gone], y=[mean for _, (_, mean) in gone], text=[label for label, _ in gone], mode="markers",
            name="left in the first heat", marker={"color": "#9498a0", "size": 6}, hovertemplate="%{text}: %{y:.2f}",
        )  # fmt: skip
    left = {label for label, _ in gone} if len(heats) > 1 else set()
    for number, (label, path) in enumerate((label, path) for label, path in paths.items() if label not in left):
        x, y = zip(*path)
        fig.add_scatter(x=x, y=y, name=label, mode="lines+markers", line=plots.style(numbers.get(label, number)))
    fig.update_layout(hovermode="closest", height=520, legend={"orientation": "h", "y": -0.15})
    return fig


def standings(answer: Mapping[str, Any], headline: Headline) -> page.Table:
    """Every contender's last heat, and what became of it."""
    rows = [
        [
            "contender",
            "what became of it",
            "validation",
            "behind the leader",
            "last heat",
            "axis",
            "why it was raced",
            "rests on",
        ]
    ]
    last = {}
    for number, heat in enumerate(answer["heats"], 1):
        for place, one in enumerate(heat["standings"]):
            last[one["method"], one["lr"]] = (-number, place, heat, one)
    for number, _, heat, one in sorted(last.values(), key=lambda entry: entry[:2]):
        label = f"{one['method']} lr={one['lr']:g}"
        mean = headline.show(one["mean"])
        became = became_of(one, -number == len(answer["heats"]))
        length = f"{-number}: {heat['rounds']} rounds, {counted(heat['seeds'], 'seed')}"
        rows.append([label, became, mean, gap(one, headline), length, one["axis"], one["reason"], one["evidence"]])
    return page.Table(rows, [row[0] for row in rows[1:]])


def became_of(one: Mapping[str, Any], last: bool) -> str:
    """What became of a contender in a heat. `last`: whether no heat came after it."""
    if one["outcome"] == "kept" and (one["low"] or 0.0) > 0:
        return "behind, stays as the baseline"  # only plain averaging does
    return "not distinguished from the leader" if last and one["outcome"] == "kept" else OUTCOMES[one["outcome"]]


def gap(one: Mapping[str, Any], headline: Headline) -> str:
    if (not one["gap"] and one["outcome"] == "leader") or one["gap"] is None:
        return "—"
    mean, low, high = (one[key] and headline.factor * one[key] for key in ("gap", "low", "high"))
    wide = low is None or (
        headline.percent and high - low > 100 * WIDE
    )  # of two seeds: it says nothing but that they are two
    return signed(mean, 2) if wide else f"{signed(mean, 2)} [{signed(low, 2)}, {signed(high, 2)}]"


def findings(answer: Mapping[str, Any]) -> list[list[str]]:
    rows = [["measured", "number", "what it suggests"]]
    for one in answer["diagnosis"]["findings"]:
        value = "—" if one["value"] is None else f"{one['value']:.3g}"
        rows.append([one["text"], value, one["suggests"] or "—"])
    return rows


def diagnosis_figures(answer: Mapping[str, Any]) -> list[page.Section]:
    from undrift.advice.pictures import pictures

    diagnosis = Diagnosis.from_json(answer["diagnosis"])
    if not {"label_skew", "label_noise"} <= {finding.name for finding in diagnosis.findings}:
        return []
    return [(f"diagnosis-{name.replace(' ', '-')}", figure) for name, figure in pictures(diagnosis)]


def about(answer: Mapping[str, Any]) -> str:
    spent, plan = answer["budget"], []
    if answer["heats"]:
        plan = [
            f"{counted(len(answer['heats']), 'heat').capitalize()} on validation data; whoever left one is listed with the reason."
        ]
        plan.append("The chance that the best contender was dropped as behind is at most 5 % over all heats.")
    if spent:
        plan.append(
            f"Budget {spent['asked']}: {spent['run']:,} rounds in {clock(spent['seconds'])}. "
            f"--budget {spent.get('repeat') or str(spent['rounds']) + 'r'} repeats it."
        )
    plan.append(f"The runs are in {answer['folder']}.")
    return "\n".join(plan)
