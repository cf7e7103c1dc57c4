"""Small pictures with circles, squares and triangles, drawn from a seed: a class per pixel, or the shapes that occur.

Every client has its own taste: which shapes it draws (Dir(1) over the three), the colours of paper and ink, and how noisy
its camera is. So `natural` is a federation with label and feature skew, of any number of clients, and all other partitions
mix the clients. Client k's pictures depend on the seed and on k only: more clients change nothing about the first.
"""

from __future__ import annotations

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.data.cache import Arrays
from undrift.data.options import at_least

KINDS = ("circle", "square", "triangle")
CLASSES = ("background", *KINDS)
MOST = 3  # shapes in one picture
TEST_SHARE = 0.2


def shapes(
    clients: int = 20, pictures: int = 50, side: int = 24, targets: str = "masks", seed: int = 0
) -> tuple[Arrays, str]:
    """The arrays, and the task that they are for. `targets=masks` is one class per pixel, `targets=labels` which of the
    shapes occur. A fifth of every client's pictures is its test part."""
    for name, value, least in (
        ("clients", clients, 1),
        ("pictures", pictures, 2),
        ("side", side, 12),
        ("seed", seed, 0),
    ):
        at_least("shapes", name, value, least)
    if targets not in ("masks", "labels"):
        raise BadRequest(f"targets of shapes must be masks or labels, not {targets!r}")
    held = max(1, round(TEST_SHARE * pictures))
    columns: dict[str, list[np.ndarray]] = {}
    for client in range(clients):
        x, masks = pictures_of(client, pictures, side, seed)
        y = masks if targets == "masks" else labels_of(masks)
        for split, rows in (("train", slice(held, None)), ("test", slice(held))):
            columns.setdefault(f"x_{split}", []).append(x[rows])
            columns.setdefault(f"y_{split}", []).append(y[rows])
            columns.setdefault(f"client_{split}", []).append(np.full(len(x[rows]), client, dtype=np.int64))
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays["clients"] = np.array([f"artist {client}" for client in range(clients)])
    arrays["classes"] = np.array(CLASSES if targets == "masks" else KINDS)
    return arrays, "segmentation" if targets == "masks" else "multilabel"


def pictures_of(client: int, pictures: int, side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 pictures [n, 3, side, side], the class of every pixel [n, side, side]) of one client."""
    draw = numpy_stream(seed, "shapes", client)
    taste, paper, grain = draw.dirichlet(np.ones(len(KINDS))), draw.uniform(0.0, 0.35, 3), draw.uniform(0.02, 0.12)
    x, masks = np.empty((pictures, 3, side, side)), np.zeros((pictures, side, side), dtype=np.int64)
    for place in range(pictures):
        picture = np.broadcast_to(paper[:, None, None], (3, side, side)).copy()
        for kind in draw.choice(len(KINDS), size=draw.integers(1, MOST + 1), p=taste):
            inside = drawn(int(kind), side, draw)
            picture[:, inside] = draw.uniform(0.5, 1.0, 3)[:, None]  # a later shape covers an earlier one
            masks[place][inside] = kind + 1
        x[place] = picture + grain * draw.standard_normal(picture.shape)
    return np.rint(x.clip(0, 1) * 255).astype(np.uint8), masks


def drawn(kind: int, side: int, draw: np.random.Generator) -> np.ndarray:
    """Which pixels a shape covers: its radius is between a sixth and a third of the side, and all of it is visible."""
    radius = draw.uniform(side / 6, side / 3)
    row, column = draw.uniform(radius, side - radius, 2)
    rows, columns = np.mgrid[:side, :side] + 0.5
    down, right = rows - row, columns - column
    if kind == 0:
        return down**2 + right**2 <= radius**2
    if kind == 1:
        return np.maximum(abs(down), abs(right)) <= radius * 0.85
    # Upright, the tip above the centre: as wide at a height as it is below the tip.
    inside: np.ndarray = (down <= radius) & (abs(right) <= (down + radius) / 2)
    return inside


def labels_of(masks: np.ndarray) -> np.ndarray:
    """[n, kinds]: 1 where a picture shows a kind."""
    shown = [(masks == kind + 1).reshape(len(masks), -1).any(1) for kind in range(len(KINDS))]
    return np.stack(shown, axis=1).astype(np.int64)
