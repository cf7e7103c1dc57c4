"""The report of one or several runs: one HTML file that can be sent around.

It reads run folders and nothing else: what it shows of a comparison is what its runs recorded.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.experiment.folders import find_folder
from undrift.experiment.options import FIELDS
from undrift.experiment.tables import legend
from undrift.report import clients, page, plots
from undrift.study.load_runs import HOW, Seen, seen
from undrift.study.standings import LEGEND, standings_table, table

GRID_HEAD = ["method", "options", "validation accuracy", "chosen"]
SHARED = ("table", "legend", "clients", "scatter-l1", "scatter-l2", "weights")  # shown for all methods together


def write(path: Path, folders: Sequence[str | Path], title: str | None = None) -> Path:
    """The page of these runs (or folders of runs)."""
    runs = seen(folders)
    page.write(path, title or heading(runs), sections(runs, [find_folder(folder) for folder in folders]))
    return path


def heading(runs: Sequence[Seen]) -> str:
    options = runs[0].options
    methods = list(dict.fromkeys(run.label for run in runs))
    who = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    noise = f", {options['noise']}" if options.get("noise") else ""
    return f"{who} on {options['data']}: {options['clients']} clients, {options['partition']}{noise}"


def sections(runs: Sequence[Seen], folders: Sequence[Path]) -> list[page.Section]:
    rows = [run.row for run in runs]
    first_seed = [run for run in runs if run.row["seed"] == runs[0].row["seed"]]
    readers = [(run.label, run.rows) for run in first_seed]
    federation, why_not = its_federation(runs[0])
    parts: list[page.Section] = [
        ("about", introduction(runs)),
        ("table", table(rows), "Results"),
        ("legend", legend()),
        ("standings", [("standings-table", standings_table(rows)), ("standings-legend", LEGEND)], "Standings"),
        ("federation", picture(federation) if federation is not None else why_not, "Who holds what"),
        ("curves", plots.bands(runs, "accuracy", ("G", "global")), "Over the rounds"),
        ("losses", plots.bands(runs, "loss", ("G", "global"))),
        ("local", plots.bands(runs, "accuracy", ("L1", "own"))),
        ("trained", plots.bands(runs, "accuracy", ("L2", "own"))),
        ("clients", plots.client_bars(readers), "Client by client"),
        ("scatter-l1", clients.trade_off(readers, "L1")),
        ("scatter-l2", clients.trade_off(readers, "L2")),
    ]
    if tried := [row for folder in folders for row in what_was_tried(folder)]:
        parts.insert(4, ("grid", [GRID_HEAD, *tried], "What the grid chose"))
    if federation is not None:
        sizes = dict(enumerate(int(size) for size in federation.sizes))
        parts.append(("size", plots.against_size(readers, sizes)))
    parts += [
        ("weights", plots.weights(readers), "Weights over the rounds"),
        ("notes", what_they_saw(first_seed, federation), "What each method saw"),
        ("events", events(runs), "What went wrong"),
        ("configuration", configuration(runs), "Configuration"),
        ("environment", environment(runs), "Environment"),
        ("commands", ("pre", commands(runs, folders)), "To repeat it"),
    ]
    return parts


def what_was_tried(folder: Path) -> list[list[str]]:
    """Every point of a comparison's grid with its validation accuracy, on the seed that chose."""
    from undrift.study.compare import validated
    from undrift.study.comparison import read
    from undrift.study.tasks import read_rows

    if not (folder / "compare.toml").exists():
        return []
    asked = read(folder)
    return [
        [row["method"], words([f"{key}={value}" for key, value in row["chosen"].items()]),
         f"{100 * validated(row):.2f}", "—" if name in asked.rejected else "chosen"]
        for name, row in sorted(read_rows(folder).items())
        if "chosen" in row and row["seed"] == asked.seeds[0][0]
    ]  # fmt: skip


def introduction(runs: Sequence[Seen]) -> str:
    seeds = sorted({run.row["seed"] for run in runs})
    short = [run for run in runs if run.row["rounds"] < run.options["rounds"] and not run.options.get("stop_at")]
    lines = [f"{len(runs)} run{'s' * (len(runs) > 1)}, {runs[0].options['rounds']} rounds, "
             f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, model {runs[0].options.get('model')}."]  # fmt: skip
    lines += [
        f"{run.label}, seed {run.row['seed']}: {run.row['rounds']} of {run.options['rounds']} rounds so far."
        for run in short
    ]
    if len(seeds) == 1 and len(runs) > 1:
        lines.append("One seed: differences between methods may be chance.")
    return "\n".join(lines)


def its_federation(run: Seen) -> tuple[Any, str]:
    from undrift.experiment.resume import rebuild_setup

    try:
        return rebuild_setup(run.folder).federation, ""
    except BadRequest as error:
        return None, f"The picture is missing: {error}."


def picture(federation: Any) -> list[page.Section]:
    from undrift.report import label_distribution as holdings

    return holdings.sections(federation, holdings.describe(federation))


def what_they_saw(runs: Sequence[Seen], federation: Any) -> list[page.Section]:
    """Of every method on the first seed: its stages, the papers' protocols, diagnostics, and what its parts noted."""
    from undrift.report import run_page
    from undrift.report.traces import traces

    found: list[page.Section] = []
    for number, run in enumerate(runs):
        alone = run_page.sections(run.label, run.rows, run.row, run.options["thresholds"])
        own = [section for section in alone if section[0] not in SHARED]
        own += traces(run.rows, federation).sections()
        inside = [(f"notes-{number}-{name}", content) for name, content in own]
        found.append((f"notes-{number}", ("details", f"{run.label}, seed {run.row['seed']}", inside)))
    return found


def events(runs: Sequence[Seen]) -> Any:
    rows = [["method", "seed", "round", "client", "kind", "detail"]]
    for run in runs:
        found = run.rows("SELECT round, client, kind, detail FROM events ORDER BY rowid LIMIT 50")
        for round, client, kind, detail in found:
            who = "—" if client is None else str(client)
            rows.append([run.label, str(run.row["seed"]), str(round), who, kind, str(detail)[:200]])
    return rows if len(rows) > 1 else "Nothing."


def configuration(runs: Sequence[Seen]) -> list[page.Section]:
    """What all runs share, and what each method has of its own."""
    keys = [key for key in FIELDS if key not in HOW and key != "method"]
    shared = [key for key in keys if len({repr(run.options.get(key)) for run in runs}) == 1]
    given = {key: runs[0].options.get(key) for key in shared}
    rows = [["option", "value"], *[[key, words(value)] for key, value in given.items() if value is not None]]
    rows.append(["not set", ", ".join(key for key, value in given.items() if value is None)])
    own = [["method", "parts", "options"]]
    for run in {run.label: run for run in runs}.values():
        differ = ", ".join(f"{key}={words(run.options.get(key))}" for key in keys if key not in shared)
        own.append([run.label, ", ".join(run.options.get("parts", [])), differ or "—"])
    return [("methods", own), ("options", rows)]


def words(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{key} {one}" for key, one in value.items()]
    return "—" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def environment(runs: Sequence[Seen]) -> list[list[str]]:
    shown = [["what", "value"]]
    for key in dict.fromkeys(key for run in runs for key in run.about):
        if key in ("federation", "layout", "environment"):
            continue
        found = sorted({words(run.about.get(key)) for run in runs})
        several = f"{found[0]} … {found[-1]}" if key == "started" else ", ".join(found)
        shown.append([key, several if len(found) > 1 else found[0]])
    for key, value in runs[0].about.get("environment", {}).items():
        shown.append([key, str(value)])
    return shown


def commands(runs: Sequence[Seen], folders: Sequence[Path]) -> str:
    lines = []
    for folder in folders:
        if (folder / "compare.toml").exists():
            lines += ["# everything", compare_command(folder), ""]
    lines.append("# one run")
    lines += [f"undrift run {shlex.quote(str(run.folder / 'run.toml'))}" for run in runs[:20]]
    if len(runs) > 20:
        lines.append(f"# … and {len(runs) - 20} more")
    return "\n".join(lines)


def compare_command(folder: Path) -> str:
    from undrift.study.comparison import read

    asked = read(folder)
    entries = [" ".join([str(e.method), *(spelt(k, v) for k, v in e.own.items())]) for e in asked.entries]
    first, data_seed = asked.seeds[0]
    repeated = len({data for _, data in asked.seeds}) == 1 and len(asked.seeds) > 1
    options = [spelt(key, value) for key, value in asked.options.items()]
    options += [f"--seed {first}"] if first else []
    options += [f"--data-seed {data_seed}"] if data_seed != first else []
    options += [f"--{'repeat' if repeated else 'seeds'} {len(asked.seeds)}"] if len(asked.seeds) > 1 else []
    options += [f"--grid {key}={','.join(map(str, values))}" for key, values in asked.grid.items()]
    return " ".join(["undrift compare", *map(shlex.quote, entries), *options])


def spelt(key: str, value: Any) -> str:
    flag = "--" + key.replace("_", "-")
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return flag if value is True else f"{flag} {shlex.quote(text)}"
