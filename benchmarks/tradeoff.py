"""The trade-off in one figure: accuracy of clients on their own distribution (Acc(L)) and on the whole test set (Acc(G)),
after receiving the global model (L1) and after training on their own data (L2).

    UNDRIFT_DATA=FOLDER python benchmarks/tradeoff.py [--out runs/tradeoff] [--figure docs/tradeoff]

FedAvg, FLIU at five γ, adaptive FLIU, CLT (local training only) and APFL on Fashion-MNIST, two classes per client, 20
clients, `lenet5`, all clients in every round, one epoch, 20 rounds, one seed: about 25 minutes on two cores. A finished run
is kept and not repeated, an interrupted one is resumed. Writes FIGURE.json (the numbers), FIGURE.html and, if chromium
is installed, FIGURE.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import undrift as ud
from undrift.cli.progress import Progress
from undrift.experiment.tables import legend, stage_table, text_table
from undrift.report.page import write
from undrift.report.picture import picture
from undrift.report.plots import COLOURS, figure

METHODS = {
    "FedAvg": "fedavg", **{f"FLIU γ={g}": f"fliu(gamma={g})" for g in (0.1, 0.25, 0.5, 0.75, 0.9)},
    "FLIU adaptive": "fliu", "CLT": "local", "APFL": "apfl",
}  # fmt: skip


def finished(folder: Path, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The summary of a run: read if it is finished, else the run is resumed or started."""
    callback = Progress(label=method)
    try:
        if (folder / "summary.json").exists():
            return json.loads((folder / "summary.json").read_text())
        if (folder / "run.toml").exists():
            result = ud.resume(folder, callback=callback)
        else:
            result = ud.run(method, out=folder, callback=callback, force=True, **options)
    finally:
        callback.end()
    (folder / "summary.json").write_text(json.dumps(result.summary))
    return result.summary


def drawn(runs: dict[str, dict[str, Any]], title: str) -> Any:
    """One colour per method: a ring for L1, a dot for L2, and a line between them."""
    fig = figure(
        title, "Acc(G): accuracy on the whole test set, mean over clients", "Acc(L): accuracy on the own test slice"
    )
    places = {name: [(run["stages"][stage]["acc_global"]["mean"], run["stages"][stage]["acc_local"]["mean"]) for stage in ("L1", "L2")]
              for name, run in runs.items()}  # fmt: skip
    labels = together({name: points[0] for name, points in places.items()})
    for number, (name, points) in enumerate(places.items()):
        colour, (x, y) = COLOURS[number % len(COLOURS)], zip(*points)
        fig.add_scatter(x=x, y=y, mode="lines+markers+text", name=name, text=[labels.get(name, ""), ""],
                        textposition="bottom right" if x[0] < 0.3 else "bottom center",
                        line={"color": colour, "dash": "dot", "width": 1},
                        marker={"size": 11, "symbol": ["circle-open", "circle"], "color": colour, "line": {"width": 2}})  # fmt: skip
    fig.update_layout(height=640, hovermode="closest", legend={"orientation": "h", "y": -0.14})
    return fig


def together(points: dict[str, tuple[float, float]], near: float = 0.02) -> dict[str, str]:
    """One label for methods whose points overlap, under the name of the first."""
    groups: list[list[str]] = []
    for name, (x, y) in points.items():
        for group in groups:
            if abs(points[group[0]][0] - x) < near and abs(points[group[0]][1] - y) < near:
                group.append(name)
                break
        else:
            groups.append([name])
    return {group[0]: "<br>".join(group) for group in groups}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", default="runs/tradeoff")
    parser.add_argument("--figure", default="docs/tradeoff")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)  # at 0.05 lenet5 diverges in the first round
    given = parser.parse_args()
    options = {
        "data": given.data, "partition": 'pathological(2, form="fliu")', "clients": given.clients, "model": given.model,
        "cohort": 1.0, "epochs": 1, "rounds": given.rounds, "evaluate_every": given.rounds, "lr": given.lr, "seed": 0,
    }  # fmt: skip
    runs = {}
    for number, (name, method) in enumerate(METHODS.items()):
        runs[name] = {**finished(Path(given.out) / f"{number}-{method}", method, options), "method": name}
    table = stage_table(list(runs.values()))
    print(f"\n{text_table(table)}\n\n{legend()}")
    for name, summary in runs.items():
        if summary["failures"]:
            print(f"{name}: {len(summary['failures'])} times a client was left out; first: {summary['failures'][0]}")
    place = Path(given.figure)
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: {"method": METHODS[name], **{key: summary[key] for key in ("rounds", "seconds", "accuracy", "stages", "failures")}}
            for name, summary in runs.items()}  # fmt: skip
    place.with_suffix(".json").write_text(
        json.dumps({"options": options, "runs": kept}, indent=1, ensure_ascii=False) + "\n"
    )
    title = f"{given.data}, two classes per client: rings L1 (on receipt), dots L2 (after training)"
    write(
        place.with_suffix(".html"),
        "Own distribution and whole test set",
        [("trade-off", drawn(runs, title)), ("table", table)],
    )
    picture(place.with_suffix(".html"), place.with_suffix(".png"), (1100, 1080))
    print(f"\nfigure: {place}.html, .json, .png")


if __name__ == "__main__":
    main()
