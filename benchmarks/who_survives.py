"""Robustness: every aggregation rule under every fault, with no broken client up to two in five.

    UNDRIFT_DATA=FOLDER python benchmarks/who_survives.py [--rounds 10] [--seeds 1]

Fashion-MNIST (digits if it is missing), Dirichlet(0.5), 100 clients, 20 of them per round. A fixed share of the clients
is broken in every round by one kind of fault. The two rules that need to know how many to expect (trimmed, krum) are set
to 30 %, so 40 % is more than they are made for. FLOOD's sample weights act like a learning rate, and at the rate of the
other rules it does not learn: it also runs at a tenth of that rate. A number is the mean over the last five rounds. One
line of JSON per finished run is appended under docs/results/, so that a stopped study can be resumed and seeds can be
added later; then the table and the figure (with a screenshot if chromium is installed) are written again. Two runs at a
time, each on one core.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from undrift.experiment.tables import markdown_table
from undrift.report.picture import picture

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
RULES = {
    "fedavg": "fedavg", "uniform": "fedavg-uniform", "bound": "bound", "fednolowe": "fednolowe", "flood": "flood",
    "flood, lr/10": "flood",
    "median": "median", "trimmed": "trimmed(0.3)", "krum": "krum(6)", "geomedian": "geomedian", "normbound": "normbound",
}  # fmt: skip
TROUBLES = {
    "drop": ("faults", "drop({share}, unit=client)"), "slow": ("faults", "slow({share}, 0.2, unit=client)"),
    "nan": ("faults", "nan({share}, unit=client)"), "flip": ("faults", "flip({share}, unit=client)"),
    "scale": ("faults", "scale({share}, 10, unit=client)"),
    "symmetric": ("noise", "symmetric({share}, unit=client)"), "pair": ("noise", "pair({share}, unit=client)"),
    "constant": ("noise", "constant({share}, 0, unit=client)"), "permute": ("noise", "permute({share})"),
}  # fmt: skip
SHARES = (0.0, 0.2, 0.4)
LAST = 5  # a number is the mean over this many last rounds


def cells(seeds: int) -> list[tuple[str, str, float, int]]:
    """(rule, trouble, share, seed). At share 0 all troubles are the same, so it is run once."""
    some = [(rule, trouble, share, seed) for seed in range(seeds) for trouble in TROUBLES for share in SHARES[1:]
            for rule in RULES]  # fmt: skip
    return [(rule, "none", 0.0, seed) for seed in range(seeds) for rule in RULES] + some


@functools.lru_cache(maxsize=2)
def build_federation(data: str, noise: str | None, seed: int) -> Any:
    """The federation, the same for all rules: built once per process."""
    import undrift as ud

    return ud.federate(data, "dirichlet(0.5)", clients=100, noise=noise, seed=seed)


def settings(data: str, rounds: int) -> dict:
    return {"data": data, "partition": "dirichlet(0.5)", "clients": 100, "cohort": 20, "rounds": rounds, "batch": 100,
            "model": "mlp(100)", "lr": 0.1, "momentum": 0.0, "evaluate_every": 1, "evaluate_clients": 1,
            "engine": "inline"}  # fmt: skip


def run_cell(job: tuple[tuple[str, str, float, int], dict]) -> dict:
    """Run one cell of the study; returns its line of the results."""
    (rule, trouble, share, seed), options = job
    import undrift as ud

    name, text = TROUBLES.get(trouble, ("", ""))
    began = time.perf_counter()
    noise = text.format(share=share) if name == "noise" else None
    faults = text.format(share=share) if name == "faults" else None
    if rule.endswith("lr/10"):
        options = {**options, "lr": options["lr"] / 10}
    result = ud.run(
        RULES[rule], build_federation(options["data"], noise, seed), **options, faults=faults, seed=seed, out=False
    )
    curve = [value for (value,) in result.rows("SELECT value FROM metrics WHERE stage = 'G' AND metric = 'accuracy' "
                                               "AND data = 'global' ORDER BY round")]  # fmt: skip
    return {"rule": rule, "trouble": trouble, "share": share, "seed": seed, "accuracy": round(float(np.mean(curve[-LAST:])), 4),
            "seconds": round(time.perf_counter() - began, 2)}  # fmt: skip


def by_cell(rows: list[dict]) -> dict[tuple[str, float, str], dict[int, float]]:
    """Accuracies in percent by (trouble, share, rule) and seed, for the lines that are complete for all rules."""
    found: dict[tuple[str, float, str], dict[int, float]] = {}
    for row in rows:
        found.setdefault((row["trouble"], row["share"], row["rule"]), {})[row["seed"]] = 100 * row["accuracy"]
    whole = [line for line in {cell[:2] for cell in found} if all((*line, rule) in found for rule in RULES)]
    return {cell: seeds for cell, seeds in found.items() if cell[:2] in whole}


def lines(found: dict[tuple[str, float, str], Any]) -> list[tuple[str, float]]:
    every = [(trouble, share) for trouble in ("none", *TROUBLES) for share in SHARES]
    return [line for line in every if (*line, "fedavg") in found]


def table(rows: list[dict]) -> str:
    """Means over seeds by trouble and share; the best of a line in bold, and the median standard deviation over seeds."""
    found = by_cell(rows)
    out = [["trouble", "broken", *RULES, "±"]]
    for trouble, share in lines(found):
        seeds = [list(found[trouble, share, rule].values()) for rule in RULES]
        values = [np.mean(one) for one in seeds]
        text = [f"**{v:.1f}**" if v > max(values) - 0.05 else f"{v:.1f}" for v in values]
        usual = f"{np.median([np.std(one, ddof=1) for one in seeds]):.1f}" if min(map(len, seeds)) > 1 else "—"
        out.append([trouble, f"{100 * share:.0f} %", *text, usual])
    return markdown_table(out)


def against_size(rows: list[dict]) -> str:
    """A rule minus size weights on the same seeds with its 95 % interval; bold if it is distinguished from zero, corrected
    for the number of rules in the line."""
    from undrift.study.verdict import Question, shown, verdicts

    found, others = by_cell(rows), [rule for rule in RULES if rule != "fedavg"]
    out = [["trouble", "broken", *others]]
    for trouble, share in lines(found):
        plain, questions = found[trouble, share, "fedavg"], []
        for rule in others:
            seeds = found[trouble, share, rule]
            questions.append(
                Question(rule, [seeds[seed] - plain[seed] for seed in sorted(seeds.keys() & plain.keys())])
            )
        cells = [(shown(verdict), verdict.outcome) for verdict in verdicts(questions)]
        out.append(
            [trouble, f"{100 * share:.0f} %", *(f"**{text}**" if said != "open" else text for text, said in cells)]
        )
    return markdown_table(out)


def figure(rows: list[dict]) -> str:
    """A page with one plot per trouble: accuracy over the share of broken clients, one line per rule."""
    from plotly.subplots import make_subplots

    from undrift.report.plots import COLOURS

    value = {cell: np.mean(list(seeds.values())) for cell, seeds in by_cell(rows).items()}
    fig = make_subplots(rows=3, cols=3, subplot_titles=list(TROUBLES), shared_xaxes=True, shared_yaxes="all",
                        vertical_spacing=0.07, horizontal_spacing=0.03)  # fmt: skip
    for at, trouble in enumerate(TROUBLES):
        for colour, rule in zip((*COLOURS, "#222222"), RULES):
            y = [value.get(("none", 0.0, rule)), *(value.get((trouble, share, rule)) for share in SHARES[1:])]
            line = {"color": colour, "dash": "dot" if "flood" in rule else None}
            fig.add_scatter(x=[100 * s for s in SHARES], y=y, name=rule, legendgroup=rule, showlegend=at == 0,
                            line=line, row=at // 3 + 1, col=at % 3 + 1)  # fmt: skip
    fig.update_layout(template="plotly_white", width=1100, height=900, legend={"orientation": "h", "y": -0.06},
                      title="accuracy over the share of broken clients (%)")  # fmt: skip
    return fig.to_html(include_plotlyjs=True, config={"displayModeBar": False})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    here = os.environ.get("UNDRIFT_DATA")
    data = "fashion-mnist" if here and (Path(here) / "FashionMNIST").exists() else "digits"
    options = settings(data, given.rounds)
    record = RESULTS / f"who-survives-{data}.jsonl"
    rows = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    done = {(r["rule"], r["trouble"], r["share"], r["seed"]) for r in rows if r["rounds"] == given.rounds}
    left = [(cell, options) for cell in cells(given.seeds) if cell not in done]
    from rich.progress import track

    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool, record.open("a") as out:
        for row in track(pool.imap_unordered(run_cell, left), "runs", len(left)):
            rows.append({**row, "rounds": given.rounds})
            out.write(json.dumps(rows[-1]) + "\n")
            out.flush()
    rows = [row for row in rows if row["rounds"] == given.rounds]
    seeds = len({row["seed"] for row in rows})
    about = (f"Accuracy (stage G, %), mean over the last {LAST} of {given.rounds} rounds on {data}, {seeds} seed(s), ±: the deviation over "
             f"seeds, median of the rules; "
             f"{', '.join(f'{k} {v}' for k, v in options.items() if k != 'data')}. "
             f"`python benchmarks/who_survives.py --rounds {given.rounds} --seeds {given.seeds}`, "
             f"{time.strftime('%Y-%m-%d')}, two cores, CPU, {sum(r['seconds'] for r in rows) / 2:.0f} s.")  # fmt: skip
    text = f"{table(rows)}\n\n{about}\n\n{against_size(rows)}"
    (RESULTS / f"who-survives-{data}.table.md").write_text(text + "\n")
    page = ROOT / "runs" / "who-survives.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text(figure(rows))
    if data == "fashion-mnist":  # the study in docs/results/who-survives.md
        picture(page, RESULTS / "who-survives.png", (1120, 920))
    print(text, f"\nfigure: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
