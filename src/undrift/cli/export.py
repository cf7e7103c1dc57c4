"""`undrift export`: the tables of a run as CSV or Parquet, and its model."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import typer

from undrift.core.errors import BadRequest

TABLES = ("rounds", "metrics", "notes", "events", "times")


def add(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    run: str = typer.Argument(..., help="folder of the run"),
    as_csv: bool = typer.Option(False, "--csv", help="write one .csv per table (the default)"),
    parquet: bool = typer.Option(False, "--parquet", help="write one .parquet per table (needs the extra `tables`)"),
    out: str | None = typer.Option(None, "--out", help="folder to write to [RUN/export]"),
    model: str | None = typer.Option(None, "--model", help="write the whole model to this .safetensors file instead"),
    adapter: bool = typer.Option(
        False, "--adapter", help="of the model only what was trained, without its frozen base"
    ),
    client: str | None = typer.Option(None, "--client", help="the model of this client [the global model]"),
    trust: bool = typer.Option(False, "--trust", help="import the code that the run names (package:function)"),
) -> None:
    """Export the record of a run, one file per table, and run.toml as the run wrote it. With --model, its model."""
    if model is not None:
        export_model(run, Path(model), adapter, client, trust)
        if not (as_csv or parquet or out):
            return
    elif adapter or client is not None:
        raise BadRequest(
            f"{'--adapter' if adapter else '--client'} goes with --model FILE; give the file, or leave it out"
        )
    export_tables(run, as_csv, parquet, out)


def export_model(run: str, path: Path, adapter: bool, client: str | None, trust: bool) -> None:
    from undrift.cli.trust import open_trusted
    from undrift.experiment.whole_model import save_model

    if path.suffix != ".safetensors":
        raise BadRequest(f"a model is written as .safetensors, not to {str(path)!r}; name such a file")
    result = open_trusted(run, trust)
    tensors, numbers = save_model(result, path, result.client_of(client), adapter)
    typer.echo(f"{path}: {tensors} tensors, {numbers:,} numbers")


def export_tables(run: str, as_csv: bool, parquet: bool, out: str | None) -> None:
    """One file per table, and run.toml as the run wrote it."""
    from undrift.cli import note
    from undrift.experiment.folders import run_folder
    from undrift.experiment.resume import open_store
    from undrift.experiment.run_file import run_file
    from undrift.store.record import kept_texts, rows_of

    folder = run_folder(run)
    written = run_file(folder)
    store = open_store(folder, written, lock=False)
    note([*written.damage, *store.damage()])
    store.close()
    target = Path(out) if out else folder / "export"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for text in kept_texts(folder, "run.toml")[0][-1:]:
            (target / "run.toml").write_text(text)
        for table in TABLES:
            names = [row[1] for row in rows_of(folder, f"PRAGMA table_info({table})")]
            rows = rows_of(folder, f"SELECT * FROM {table} ORDER BY rowid") if names else []
            if not names:
                continue  # made by an older version, without this table
            if as_csv or not parquet:
                write_csv(target / f"{table}.csv", names, rows)
            if parquet:
                write_parquet(target / f"{table}.parquet", names, rows)
            typer.echo(f"{target / table}: {len(rows)} rows")
    except OSError as error:
        raise BadRequest(f"{target} cannot be written: {error.strerror or error}; choose another --out") from None


def write_csv(path: Path, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def write_parquet(path: Path, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadRequest("--parquet needs pyarrow: pip install 'undrift[tables]'; --csv works without") from None
    columns = [list(column) for column in zip(*rows)] if rows else [[] for _ in names]
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, columns))), path)
