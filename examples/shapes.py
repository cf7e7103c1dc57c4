"""Pixels: which pixel belongs to a circle, a square or a triangle.

Twenty artists draw on paper of their own colour, and each prefers some shapes. They train a small U-Net by FedAvg, whose rate
is chosen on a tenth of their training pictures. The script prints the mean IoU and writes a picture: eight test pictures,
their true masks, and the predicted ones below.

    python examples/shapes.py [FOLDER [ROUNDS]]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import undrift as ud

COLOURS = np.array([[240, 240, 240], [0, 114, 178], [230, 159, 0], [0, 158, 115]], dtype=np.uint8)  # of the classes
SHOWN, LARGER = 8, 5


def strip(pictures: np.ndarray) -> np.ndarray:
    """Pictures (n, height, width, 3) in one row, with a white line between them."""
    framed = np.pad(pictures, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    return np.concatenate(list(framed), axis=1)


def main(folder: Path, rounds: int) -> None:
    federation = ud.federate("shapes(clients=20, pictures=50)", seed=0, validation=0.1)
    compared = ud.compare(
        ["fedavg"], federation, grid={"lr": [0.003, 0.01]}, model="unet(8)", rounds=rounds, cohort=0.5, epochs=2, batch=8,
        optimizer="adam", lr_decay=0.97, evaluate_every=rounds, out=folder / "shapes",
    )  # fmt: skip
    result = ud.load(compared.rows[0]["run"], federation=federation)
    print(result.table())
    print(f"mean IoU {result.headline:.3f} on {len(federation.test_y)} test pictures of {federation.clients} artists")

    rows = torch.arange(0, len(federation.test_y), len(federation.test_y) // SHOWN)[:SHOWN]  # artists lie in order
    x, truth = federation.test_x[rows], federation.test_y[rows]
    with torch.no_grad():
        guess = federation.task.predict(result.model(x.permute(0, 3, 1, 2)))  # stored with the channels last
    mean, std = (torch.tensor(values) for values in federation.scale)
    pixels = ((x * std + mean).clamp(0, 1) * 255).byte().numpy()
    whole = np.concatenate([strip(pixels), strip(COLOURS[truth.numpy()]), strip(COLOURS[guess.numpy()])])
    Image.fromarray(whole.repeat(LARGER, 0).repeat(LARGER, 1)).save(folder / "shapes.png", optimize=True)
    print("wrote shapes.png: pictures, true masks, predicted masks")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary), int(sys.argv[2]) if len(sys.argv) > 2 else 30)
