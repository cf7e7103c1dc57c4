"""What the templates of results can use: numbers, clauses and tables, made from the result files.

`R("bound-table1")` is a results file, whose methods (`src/undrift/papers/sentences.py`) give numbers with their seeds and clauses
with their intervals. Everything else is a method of `Namespace`.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent
ROOT = RESULTS.parents[1]
PEERS = (
    ("bare training loop", "bare", "optim"), ("**Undrift**", "undrift", ""), ("pfl-research 0.6.0", "pfl", ""),
    ("FedJAX 0.0.17 (the better of jit and pmap)", "fedjax", None),
    ("Flower 1.41.0 simulation (the better of two ways; run apart)", "flower", None),
)  # fmt: skip
WEIGHTS = ["fedavg", "uniform", "bound", "fednolowe"]
ROBUST = ["median", "trimmed", "krum", "geomedian", "normbound"]
RULES = {
    "WEIGHTS": WEIGHTS, "ROBUST": ROBUST, "AVERAGING": [*WEIGHTS, "normbound"], "WITHOUT_FLOOD": [*WEIGHTS, *ROBUST],
}  # fmt: skip
sys.path.insert(0, str(ROOT / "benchmarks"))


def presets(folder: Path) -> list[str]:
    """The files of `undrift paper run`."""
    from undrift.papers.standing import results_files

    return sorted(file.stem for files in results_files(folder).values() for _, file in files)


class Namespace:
    """What the templates can use, over the result files of a folder."""

    def __init__(self, folder: Path = RESULTS) -> None:
        from claims_page import ClaimsPage

        from undrift.papers import sentences

        self.folder, self.sentences, self.claims_page = folder, sentences, ClaimsPage(folder)
        self.R = functools.cache(self.results)

    def results(self, name: str) -> Any:
        file = self.folder / f"{name}.jsonl"
        if name in ("controls", "demo"):
            return self.sentences.of_comparison(file)
        if name.startswith("who-survives"):
            key = lambda row: (row["rule"], f"{row['trouble']} {100 * row['share']:.0f} %")  # noqa: E731
            return self.sentences.of_lines(file, key, "accuracy", 100.0)
        return self.sentences.of_preset(file)

    def minutes(self) -> dict[str, Any]:
        """What `undrift paper list` knows of the time that presets take."""
        from undrift.papers.minutes import seconds_of_commands, seconds_of_rounds

        measured = json.loads((ROOT / "benchmarks" / "quick_presets.json").read_text())
        return {
            "commands": seconds_of_commands([*measured["presets"], *measured["more"]]),
            "rounds": seconds_of_rounds(line for name in presets(self.folder) for line in self.lines(name)),
        }

    def lines(self, name: str) -> list[dict[str, Any]]:
        return self.sentences.read_lines(self.folder / f"{name}.jsonl")

    def about(self, name: str, column: str | None = None) -> str:
        """Data, scale, rounds and seeds of a preset's results, or of one column of them."""
        found = self.R(name)
        first = found.lines[0]
        rounds = self.sentences.ranges([line["rounds"] for line in found.lines], 0)
        scale = "at the paper's scale" if first["scale"] == "paper" else "quick scale"
        return f"{first['options']['data']}, {scale}, {rounds} rounds, {found.seeds(None, column)}"

    def where(self, name: str, column: str | None = None) -> str:
        return f"{self.about(name, column)}: docs/results/{name}.jsonl"

    def study(self, name: str, study: str) -> str:
        """The table of a comparison, as the command prints it."""
        from undrift.experiment.tables import text_table
        from undrift.study.standings import results_table

        rows = [line for line in self.lines(name) if line["study"] == study]
        return text_table([line[:-1] for line in results_table(rows)])

    def concluded(self, name: str, study: str) -> str:
        """The sentence that `undrift compare` gives for a study."""
        from undrift.study.conclusion import conclusion

        return conclusion([line for line in self.lines(name) if line["study"] == study]).sentence

    def command(self, name: str, study: str) -> str:
        return next(line["command"] for line in self.lines(name) if line["study"] == study)

    def made(self, name: str) -> str:
        """Machine and days of a file."""
        lines = self.lines(name)
        machines = sorted({line["machine"] for line in lines if "machine" in line})
        days = sorted({line["date"] for line in lines if "date" in line})
        return "; ".join([*machines, " to ".join(dict.fromkeys((days[0], days[-1])))] if days else machines)

    def survival_tables(self, which: str) -> str:
        import who_survives

        rows = self.lines("who-survives-fashion-mnist")
        return who_survives.table(rows) if which == "levels" else who_survives.against_size(rows)

    def cost_table(self) -> str:
        import costs

        from undrift.experiment.tables import text_table

        return text_table(costs.table(self.lines("costs")))

    def cost(self, method: str) -> dict[str, Any]:
        return next(line for line in self.lines("costs") if line["method"] == method)

    def odd_tables(self) -> str:
        import odd_clients

        return odd_clients.tables(self.lines("odd-clients")).strip()

    def outlier_table(self) -> str:
        import odd_clients

        return odd_clients.outlier_table()

    def odd(self, rule: str, kind: str, when: str = "after 20 rounds") -> str:
        """Mean weight of a kind of client under a rule, relative to the uniform one."""
        found = [
            line["weights"][kind] for line in self.lines("odd-clients") if (line["when"], line["rule"]) == (when, rule)
        ]
        return f"{sum(found) / len(found):.2f}"

    def odd_verdict(self, rule: str, kind: str, other: str, when: str = "after 20 rounds") -> str:
        """`more than`, `less than`, or `not distinguishably other than`: two kinds of clients under one rule, over seeds."""
        from undrift.study.verdict import Question, verdicts

        lines = [line for line in self.lines("odd-clients") if (line["when"], line["rule"]) == (when, rule)]
        gaps = [line["weights"][kind] - line["weights"][other] for line in lines]
        outcome = verdicts([Question("", gaps)])[0].outcome
        return {"true": "more than", "false": "less than", "open": "not distinguishably other than"}[outcome]

    def controls(self) -> str:
        """A section per remedy: what comes out, the command, the table."""
        parts = []
        for study in dict.fromkeys(line["study"] for line in self.lines("controls")):
            found = self.R("controls")
            value = "L1 Acc(L)" if study == "fliu" else "G"
            others = [row for row in found.rows if row != study and (row, study, 0) in found.values["G"]]
            said = found.group(others, study, study, value)
            what = "accuracy on own data on receipt (L1)" if study == "fliu" else "accuracy of the global model (G)"
            command = self.command("controls", study).replace(" --data", " \\\n  --data")
            parts.append(f"## {study}\n\nBy {what}, with the differences in the order named: {said}.\n\n"
                         f"```sh\n{command}\n```\n\n```\n{self.study('controls', study)}\n```")  # fmt: skip
        return "\n\n".join(parts)

    def thirty(self) -> str:
        """FedNolowe's table at 30 % participation, if it was run."""
        found = self.R("fednolowe-table3")
        best = max(found.rows, key=lambda row: float(found.level(row, "10 %")))
        said = (f"The paper prints 91.5 for FedNolowe; the highest number at 10 % is {found.level(best, '10 %')} ({best}). The "
                "printed number's place in the text is lost, and the neighbouring paragraph quotes 30 %. ")  # fmt: skip
        if "30 %" not in found.columns:
            return said + "At 30 % it has not been run to its end."
        ours, uniform = (found.mean(row, "30 %") for row in ("FedNolowe", "FedAvg, uniform"))
        off, far = (abs(float(found.level("FedNolowe", column)) - 91.54) for column in ("30 %", "10 %"))
        fits = "so it fits 30 %" if off <= 1.5 < far else "so it fits both" if far <= 1.5 else "so it fits neither"
        gap = found.against("FedNolowe", "FedAvg, uniform", ["30 %"], names=("FedNolowe", "them"), digits=2)
        return (
            said
            + f"At 30 % ({found.seeds('FedNolowe', '30 %')}) FedNolowe has {ours}, {off:.1f} from the printed number, and at "
            f"10 % it is {far:.1f} away, {fits}. Uniform weights have {uniform} at 30 %: {gap}."
        )

    def limits(self) -> str:
        """Whether every limit is met."""
        above = [line["method"] for line in self.lines("costs") if line.get("limit", 9) < line.get("cpu_ratio", 0)]
        return "All are met." if not above else f"Above their limit: {', '.join(above)}."

    def survival(self) -> Any:
        return self.R("who-survives-fashion-mnist")

    def survival_gap(self, row: str, other: str) -> str:
        """The range of the mean difference of two rules over all lines of the study."""
        gaps = [abs(verdict.mean) for verdict in self.survival().verdicts(row, other)]
        return self.sentences.ranges([min(gaps), max(gaps)])

    def survives(self, rule: str) -> str:
        return self.survival().against(
            rule, "fedavg", ["none 0 %", "scale 40 %", "flip 40 %", "constant 40 %"], names=("it", "them")
        )

    def where_survival(self) -> str:
        return f"fashion-mnist, ten rounds, {self.survival().seeds()}: docs/results/who-survives.md"

    def where_controls(self) -> str:
        return f"digits, Dirichlet(0.1), 30 % wrong labels, {self.R('controls').seeds()}: docs/results/controls.md"

    def trade(self, method: str, stage: str = "G", data: str = "global") -> float:
        """A number of docs/tradeoff.json in percent."""
        run = json.loads((ROOT / "docs" / "tradeoff.json").read_text())["runs"][method]
        return 100 * (run["accuracy"] if stage == "G" else run["stages"][stage][f"acc_{data}"]["mean"])

    def peers(self) -> dict[str, Any]:
        return dict(json.loads((ROOT / "benchmarks" / "peers" / "results.json").read_text()))

    def peers_about(self) -> str:
        found = self.peers()
        return f"{found['date']}, {found['machine']}"

    def peers_paired(self) -> str:
        return ", ".join(f"({work}) {ratio:.2f}" for work, ratio in self.peers()["undrift_over_pfl"].items())

    def peers_table(self) -> str:
        """Seconds and paired ratios of every framework; of several variants the fastest."""
        from undrift.experiment.tables import markdown_table

        rows = [["", "(a) MLP, 10 of 100 clients", "(b) CNN, 10 of 100 clients", "(c) logistic, 100 of 1000 clients"]]
        for label, peer, variant in PEERS:
            cells = []
            for work in "abc":
                runs = [
                    r for r in self.peers()["results"] if r["peer"] == peer and r["work"] == work and "seconds" in r
                ]
                best = min((r for r in runs if not variant or r["variant"] == variant), key=lambda r: r["seconds"])
                ratio = f" ({best['over_bare']:.2f}×)" if "over_bare" in best else ""
                cells.append(f"{best['seconds']:.3f}{ratio}")
            rows.append([label, *cells])
        return markdown_table(rows)

    def peers_whole(self) -> str:
        """Every framework and variant, as the benchmark prints it."""
        return str(peers_program().table(self.peers()["results"], list("abc"), self.peers())).partition("\n\n")[0]

    def peers_faster(self) -> str:
        """Who needs less time than Undrift, by the paired ratios to the bare loop."""
        runs = [run for run in self.peers()["results"] if "over_bare" in run]
        ours = {run["work"]: run["over_bare"] for run in runs if run["peer"] == "undrift"}
        rivals = [
            run for run in runs if run["peer"] not in ("undrift", "bare") and run["over_bare"] < ours[run["work"]]
        ]
        said = [f"{run['peer']} on ({run['work']}) ({run['over_bare']:.2f}× the bare loop)" for run in rivals]
        return f"Frameworks that need less time than Undrift: {', '.join(said) or 'none'}."

    def matching(self, model: str) -> tuple[float, float]:
        """Of FedNolowe's Table 6: percent that FedMA's matching and FedProx's term add to a FedAvg round of a model."""
        own = {line["method"].partition("(")[0]: line for line in self.lines("table6") if line["model"] == model}
        whole = own["fedavg"]["flops"] + own["fedavg"]["elementwise"]
        matching = own["fedma@uniform"]
        added = (
            matching["server_products"] + matching["server_assignments"] + matching["server"] - own["fedavg"]["server"]
        )
        return 100 * added / whole, 100 * (own["fedprox"]["elementwise"] - own["fedavg"]["elementwise"]) / whole

    def table6(self, model: str) -> str:
        import table6

        return str(table6.table(self.lines("table6"), model))

    def as_counted(self) -> str:
        """Whether the count by hand of FedMA's matching is what the diagnostic counted."""
        own = [line for line in self.lines("table6") if "by_hand" in line]
        same = [line for line in own if [line["server_products"], line["server_assignments"]] == line["by_hand"]]
        return f"The two agree in {len(same)} of {len(own)} cases"

    def tables(self) -> str:
        from undrift.papers.results import results_markdown

        return "\n\n".join(results_markdown(self.folder / f"{name}.jsonl") for name in presets(self.folder))

    def named(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        from undrift.study.verdict import counted, listed, signed

        return {**own, **RULES, "counted": counted, "listed": listed, "signed": signed, "ranges": self.sentences.ranges}


def peers_program() -> Any:
    """benchmarks/peers/run.py as a module."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("peers_run", ROOT / "benchmarks" / "peers" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
