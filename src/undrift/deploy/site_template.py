"""The parts of a site's data.py that depend on the deployment: what y is, the moments, and the reader that fits the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undrift.data.csv_file import csv_columns
from undrift.data.dataset import DataSet
from undrift.deploy.spec import Spec

ARRAYS = (
    "An .npz:",
    'file = np.load(HERE / "data.npz")  # x as it was measured, not yet scaled; y\n'
    '    return standardised(file["x"], MEAN, STD), file["y"]',
)
IMAGES = (
    "Images in folders CLASS/…, or train/CLASS/… and test/CLASS/…:",
    'return image_folder(HERE / "images", LABELS, SHAPE, MEAN, STD)',
)
UNKNOWN = "# unknown here: agree on them with all sites, and keep them the same everywhere"


def values(source: DataSet | None, options: dict[str, Any], spec: Spec) -> dict[str, str]:
    """The values of the template."""
    classes = "labels" in spec.task.provides
    return {
        **moments(source, spec),
        "y": "class numbers" if classes else f"the targets of {spec.task.spelled}",
        "labels_are": "names of the classes 0, 1, 2, … in y; the same order at every site"
        if classes
        else "names of the network's outputs; the same at every site",
        "readers": readers(options, classes),
    }


def moments(source: DataSet | None, spec: Spec) -> dict[str, str]:
    """The means and deviations with which the simulation standardised the data."""
    if source is None:
        return {"mean": repr((0.0,)), "std": repr((1.0,)), "moments_from": UNKNOWN}
    found = f"# of {Path(source.name).name}, as in the simulation; the same at every site"
    if not source.mean:
        found = f"# none: the samples of {Path(source.name).name} are used as they are"
    elif source.shape != spec.shape:
        found = f"# of {Path(source.name).name}, whose samples have another shape: check them; the same at every site"
    return {"mean": repr(source.mean), "std": repr(source.std), "moments_from": found}


def readers(options: dict[str, Any], classes: bool) -> str:
    """The body of `load`: the reader for data like the simulation's first, the others as comments."""
    data = Path(str(options.get("data") or ""))
    found = [ARRAYS, *([IMAGES] if classes else []), table_reader(data, options, classes)]
    first = found[-1] if data.suffix == ".csv" else IMAGES if classes and len(data.parts) and data.is_dir() else ARRAYS
    rest = [(title, code) for title, code in found if code != first[1]]
    comments = [f"# {line.strip()}" for title, code in rest for line in (title, *code.splitlines())]
    return "\n    ".join([first[1], *comments])


def table_reader(data: Path, options: dict[str, Any], classes: bool) -> tuple[str, str]:
    """The reader of a CSV file: with the columns of the simulation's table, in its order, if it was one."""
    labels = "LABELS" if classes else "None"
    if data.suffix != ".csv":
        what = 'with the class names is "label"' if classes else 'with the target is "label"'
        return f"A CSV file with a header, whose column {what}:", (
            f'return table(HERE / "table.csv", "label", {labels}, MEAN, STD)'
        )
    columns, target = list(csv_columns(data)), str(options["target"])
    targets = [target] if target in columns else [name.strip() for name in target.split(",")]
    features = [name for name in columns if name not in (*targets, options.get("client_column"))]
    predicted = repr(targets[0] if len(targets) == 1 else targets)
    return "A CSV file with these columns (and others, which are ignored):", (
        f'return table(HERE / "table.csv", {predicted}, {labels}, MEAN, STD, {features!r})'
    )
