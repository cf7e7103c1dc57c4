"""The report of one or several runs: one self-contained HTML file.

It reads run folders only. Of a comparison it shows what the runs recorded.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.headline import Headline
from undrift.experiment.folders import find_folder
from undrift.experiment.options import FIELDS
from undrift.experiment.resume import sentence_if_damaged
from undrift.experiment.tables import as_text, headline_of, legend
from undrift.report import clients, page, plots
from undrift.store.record import client_names
from undrift.study.conclusion import by_rank
from undrift.study.dry_run import weighting_note
from undrift.study.load_runs import NOT_IN_LABELS, LoadedRun, load_runs
from undrift.study.standings import rank_column, results_table, sites_table, standings_legend, standings_table
from undrift.study.tasks import Row

DETAILS, CURVES = 10, 60  # methods that are shown client by client; methods whose curves are drawn
SHARED = ("table", "legend", "clients", "scatter-l1", "scatter-l2", "weights")  # sections for all methods together


def write(path: Path, folders: Sequence[str | Path], title: str | None = None, rank_by: str | None = None) -> list[str]:
    """Write the page of these runs, or folders of runs. Returns sentences about what is damaged in them."""
    runs = load_runs(folders)
    damage = [f"{run.folder}: {sentence}" for run in runs for sentence in run.damage]
    with sentence_if_damaged(runs[0].folder, damage):
        page.write(path, title or heading(runs), sections(runs, [find_folder(folder) for folder in folders], rank_by))
    return damage


def heading(runs: Sequence[LoadedRun]) -> str:
    options = runs[0].options
    methods = list(dict.fromkeys(run.label for run in runs))
    name = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    dealt = "".join(f", {options[name]}" for name in ("partition", "noise") if options.get(name))
    return f"{name} on {options['data']}: {options['clients']} clients{dealt}"


def sections(runs: Sequence[LoadedRun], folders: Sequence[Path], rank_by: str | None = None) -> list[page.Section]:
    rows = [run.row for run in runs]
    headline = headline_of(rows)
    drawn, shown, note = chosen_runs(runs, rank_by)
    queries = [(run.label, run.query) for run in shown]
    federation, why_not = federation_of(runs[0])
    standings = [
        ("standings-table", standings_table(rows, rank_by)),
        ("standings-legend", standings_legend(rows, rank_by)),
    ]
    parts: list[page.Section] = [
        ("about", introduction(runs)),
        *([("conclusion", concluded(rows, folders, rank_by))] if len({run.label for run in runs}) > 1 else []),
        ("table", results_table(rows, rank_by), "Results"),
        ("legend", legend(headline)),
        ("standings", standings, "Standings"),
        ("federation", federation_sections(federation) if federation is not None else why_not, "Label distribution"),
        *curves(drawn),
        ("clients", plots.client_bars(queries), "Clients"),
        ("clients-note", note),
        ("scatter-l1", clients.trade_off(queries, "L1")),
        ("scatter-l2", clients.trade_off(queries, "L2")),
    ]
    if sites := sites_table(rows):
        what = f"L1 {headline.title}(L) of every named client, mean over seeds"
        parts.insert(4, ("sites", [("sites-table", sites), ("sites-legend", what)], "Client by method"))
    if tried := [row for folder in folders for row in grid_rows(folder)]:
        parts.insert(
            4, ("grid", [["method", "options", f"validation {headline.name}", "chosen"], *tried], "Grid search")
        )
    if federation is not None:
        sizes = dict(enumerate(int(size) for size in federation.sizes))
        parts.append(("size", plots.against_size(queries, sizes)))
    parts += [
        ("weights", plots.weights(queries), "Weights over the rounds"),
        ("notes", method_sections(shown, federation), "Notes of each method"),
        ("events", events(runs), "Failures and other events"),
        ("configuration", configuration(runs), "Configuration"),
        ("environment", environment(runs), "Environment"),
        ("commands", ("pre", commands(runs, folders)), "Commands to repeat this"),
    ]
    return parts


def curves(runs: Sequence[LoadedRun]) -> list[page.Section]:
    """The figures over the rounds."""
    headline = headline_of([run.row for run in runs]).name
    return [
        ("curves", plots.bands(runs, headline, ("G", "global")), "Over the rounds"),
        ("losses", plots.bands(runs, "loss", ("G", "global"))),
        ("training-loss", plots.bands(runs, "loss", ("train", "train"))),
        ("local", plots.bands(runs, headline, ("L1", "own"))),
        ("trained", plots.bands(runs, headline, ("L2", "own"))),
    ]


def for_paper(runs: Sequence[LoadedRun], rank_by: str | None = None) -> list[page.Section]:
    """The figures that are also written as files."""
    drawn, shown, _ = chosen_runs(runs, rank_by)
    queries = [(run.label, run.query) for run in shown]
    named = [("clients", plots.client_bars(queries))]
    return [*curves(drawn), *named, *((f"scatter-{s.lower()}", clients.trade_off(queries, s)) for s in ("L1", "L2"))]


def chosen_runs(runs: Sequence[LoadedRun], rank_by: str | None = None) -> tuple[list[LoadedRun], list[LoadedRun], str]:
    """(the runs whose curves are drawn, those shown client by client, what the page says about them): the first method
    and the best ones. A figure with a thousand lines shows nothing, and takes minutes to make."""
    rows = [run.row for run in runs]
    best = [line[0] for line in standings_table(rows, rank_by)[1:]]
    order = {label: place for place, label in enumerate(dict.fromkeys([runs[0].label, *best]))}
    seed = runs[0].row["seed"]
    drawn = [run for run in runs if order[run.label] < CURVES]
    shown = [run for run in runs if order[run.label] < DETAILS and run.row["seed"] == seed]
    lines = [f"Client by client, and in the notes of each method: seed {seed}."]
    if len(order) > DETAILS:
        lines.append(
            f"Only the first method and the best ones by {rank_column(rows, rank_by)} are shown client by client "
            f"({DETAILS} of {len(order)}); `undrift report RUN` has all figures of one run."
        )
    if len(order) > CURVES:
        lines.append(f"Of {len(order)} methods, the curves of {CURVES} are drawn.")
    return drawn, shown, "\n".join(lines)


def concluded(rows: Sequence[Row], folders: Sequence[Path], rank_by: str | None = None) -> str:
    """What the runs allow to conclude. The comparison knows how often its seeds were looked at."""
    from undrift.study.comparison import read_comparison

    found = [read_comparison(folder).looks for folder in folders if (folder / "compare.toml").exists()]
    looks = next((one for one in found if one is not None), None)
    return by_rank(rows, rank_by, looks).sentence


def grid_rows(folder: Path) -> list[list[str]]:
    """Every point of a comparison's grid with its headline on validation data, on the seed that the choice was made on."""
    from undrift.study.compare import validation_value
    from undrift.study.comparison import read_comparison
    from undrift.study.tasks import read_rows

    if not (folder / "compare.toml").exists():
        return []
    comparison = read_comparison(folder)
    return [
        [
            row["method"],
            as_text([f"{key}={value}" for key, value in row["chosen"].items()]),
            Headline.of(row).show(validation_value(row)),
            "—" if name in comparison.rejected else "chosen",
        ]
        for name, row in sorted(read_rows(folder).items())
        if "chosen" in row and row["seed"] == comparison.seeds[0][0]
    ]


def introduction(runs: Sequence[LoadedRun]) -> str:
    seeds = sorted({run.row["seed"] for run in runs})
    short = [run for run in runs if run.row["rounds"] < run.options["rounds"] and not run.options.get("stop_at")]
    lines = [
        f"{len(runs)} run{'s' * (len(runs) > 1)}, {runs[0].options['rounds']} rounds, "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, model {runs[0].options.get('model')}."
    ]
    lines += [
        f"{run.label}, seed {run.row['seed']}: {run.row['rounds']} of {run.options['rounds']} rounds so far."
        for run in short[:10]
    ]
    lines += [f"Damaged: {run.folder.name}: {sentence}." for run in runs for sentence in run.damage]
    if len(short) > 10:
        lines.append(f"… and {len(short) - 10} more runs that are not finished.")
    if note := weighting_note({run.label: weighting_of(run) for run in runs}):
        lines.append(f"{note[0].upper()}{note[1:]}.")
    return "\n".join(lines)


def weighting_of(run: LoadedRun) -> str:
    """The name of the rule that weighs the clients of a run."""
    written = [
        str(part).removeprefix("weighting.")
        for part in run.options.get("parts", [])
        if str(part).startswith("weighting.")
    ]
    return written[0].partition("(")[0] if written else "unknown"


def federation_of(run: LoadedRun) -> tuple[Any, str]:
    """The federation of a run, or None and the sentence that says why it cannot be made again."""
    from undrift.experiment.resume import rebuild_federation

    try:
        return rebuild_federation(run.folder), ""
    except BadRequest as error:
        return None, f"There is no figure: {error}."


def federation_sections(federation: Any) -> list[page.Section]:
    from undrift.report import label_distribution

    return label_distribution.sections(federation, label_distribution.describe(federation))


def method_sections(runs: Sequence[LoadedRun], federation: Any) -> list[page.Section]:
    """Per method, on the first seed: stages, the papers' protocols, diagnostics, and the notes of its parts."""
    from undrift.report import run_page
    from undrift.report.traces import traces

    parts: list[page.Section] = []
    for number, run in enumerate(runs):
        every = run_page.sections(run.label, run.query, run.row, run.options["thresholds"])
        own = [section for section in every if section[0] not in SHARED]
        own += traces(run.query, federation).sections()
        inside = [(f"notes-{number}-{name}", content) for name, content in own]
        parts.append((f"notes-{number}", ("details", f"{run.label}, seed {run.row['seed']}", inside)))
    return parts


def events(runs: Sequence[LoadedRun]) -> Any:
    """At most 50 events of each run and 1000 in all, as a table."""
    rows = [["method", "seed", "round", "client", "kind", "detail"]]
    for run in runs:
        if len(rows) > 1000:
            break
        names = client_names(run.query)
        for round, client, kind, detail in run.query(
            "SELECT round, client, kind, detail FROM events ORDER BY rowid LIMIT 50"
        ):
            shown = "—" if client is None else names.short(client)
            rows.append([run.label, str(run.row["seed"]), str(round), shown, kind, str(detail)[:200]])
    return rows if len(rows) > 1 else "None."


def configuration(runs: Sequence[LoadedRun]) -> list[page.Section]:
    """The parts and own options of each method, and the options that all runs share."""
    keys = [key for key in FIELDS if key not in NOT_IN_LABELS and key != "method"]
    shared = [key for key in keys if len({repr(run.options.get(key)) for run in runs}) == 1]
    given = {key: runs[0].options.get(key) for key in shared}
    rows = [["option", "value"], *[[key, as_text(value)] for key, value in given.items() if value is not None]]
    rows.append(["not set", ", ".join(key for key, value in given.items() if value is None)])
    own = [["method", "parts", "options"]]
    for run in {run.label: run for run in runs}.values():
        differ = ", ".join(f"{key}={as_text(run.options.get(key))}" for key in keys if key not in shared)
        own.append([run.label, ", ".join(run.options.get("parts", [])), differ or "—"])
    return [("methods", own), ("options", rows)]


def environment(runs: Sequence[LoadedRun]) -> list[list[str]]:
    shown = [["what", "value"]]
    for key in dict.fromkeys(key for run in runs for key in run.about):
        if key in ("federation", "layout", "environment"):
            continue
        values = sorted({as_text(run.about.get(key)) for run in runs})
        several = f"{values[0]} … {values[-1]}" if key == "started" else ", ".join(values)
        shown.append([key, several if len(values) > 1 else values[0]])
    for key, value in runs[0].about.get("environment", {}).items():
        shown.append([key, str(value)])
    return shown


def commands(runs: Sequence[LoadedRun], folders: Sequence[Path]) -> str:
    """The commands that repeat the comparisons, and the first twenty runs one by one."""
    lines = []
    for folder in folders:
        if (folder / "compare.toml").exists():
            lines += ["# the whole comparison", compare_command(folder), ""]
    lines.append("# one run")
    lines += [f"undrift run {shlex.quote(str(run.folder / 'run.toml'))}" for run in runs[:20]]
    if len(runs) > 20:
        lines.append(f"# … and {len(runs) - 20} more")
    return "\n".join(lines)


def compare_command(folder: Path) -> str:
    """The command line that asks for the comparison in a folder."""
    from undrift.study.comparison import read_comparison

    comparison = read_comparison(folder)
    entries = [
        " ".join([str(e.method), *(option_text(k, v) for k, v in e.own_options.items())]) for e in comparison.entries
    ]
    first, data_seed = comparison.seeds[0]
    repeated = len({data for _, data in comparison.seeds}) == 1 and len(comparison.seeds) > 1
    options = [option_text(key, value) for key, value in comparison.options.items()]
    options += [f"--seed {first}"] if first else []
    options += [f"--data-seed {data_seed}"] if data_seed != first else []
    looks = comparison.looks
    count = looks.first if looks else len(comparison.seeds)
    options += [f"--{'repeat' if repeated else 'seeds'} {count}"] if count > 1 else []
    options += [f"--until-clear {looks.most}"] if looks else []
    options += [f"--grid {key}={','.join(map(str, values))}" for key, values in comparison.grid.items()]
    return " ".join(["undrift compare", *map(shlex.quote, entries), *options])


def option_text(key: str, value: Any) -> str:
    flag = "--" + key.replace("_", "-")
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return flag if value is True else f"{flag} {shlex.quote(text)}"
