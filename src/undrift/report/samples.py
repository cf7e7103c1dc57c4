"""A few pictures of every client, as it sees them and with the labels it believes."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import numpy as np
import torch

from undrift.federation.federation import Federation

MOST = 100  # clients with pictures on a page
EACH = 10  # pictures per client

STYLE = """<style>.clients{display:grid;grid-template-columns:repeat(auto-fill,minmax(21rem,1fr));gap:.3rem 1.5rem}
.clients figure{margin:0}.clients figcaption{font-size:.8rem;color:#59636e}.clients img{width:30px;height:30px;margin-right:2px;
image-rendering:pixelated;border-bottom:3px solid transparent}.clients img.wrong{border-color:#d1242f}</style>"""


def markup(federation: Federation, found: dict[str, Any]) -> str:
    clients = range(min(len(found["sizes"]), MOST))
    shown = f"the first {MOST} of {federation.clients} clients" if federation.clients > MOST else "every client"
    head = (f"<p class='note'>Up to {EACH} samples of {shown}, evenly spaced in the order of their labels; point at one to read "
            "the label it has there. A red line: the label is wrong.</p>")  # fmt: skip
    return f"{STYLE}{head}<div class='clients'>{''.join(one(federation, found, client) for client in clients)}</div>"


def one(federation: Federation, found: dict[str, Any], client: int) -> str:
    rows, labels = federation.rows(client), federation.train_labels(client)
    order = np.argsort(labels, kind="stable")
    chosen = order[np.linspace(0, len(rows) - 1, min(EACH, len(rows))).round().astype(int)]
    wrong = federation.y.numpy()[rows] != federation.clean_y.numpy()[rows]
    pictures = "".join(
        f"<img alt='' title='{html.escape(federation.labels[labels[i]], quote=True)}' src='{png(pixels)}'"
        f"{' class=wrong' if wrong[i] else ''}>"
        for i, pixels in zip(chosen, grey_levels(federation, rows[chosen]))
    )
    kind = [found["domain"][client]] if found["domain"] else []
    kind += ["classes permuted"] if client in federation.permutations else []
    words = " · ".join([f"client {client}", f"{len(rows)} samples", *kind])
    return f"<figure><figcaption>{html.escape(words)}</figcaption>{pictures}</figure>"


def grey_levels(federation: Federation, rows: np.ndarray) -> np.ndarray:
    """Samples as uint8 (n, height, width) or (n, height, width, 3)."""
    x = federation.x[torch.from_numpy(np.ascontiguousarray(rows))]
    if federation.scale is not None:
        mean, std = (torch.tensor(values) for values in federation.scale)
        x = x * std + mean
    else:  # the user's own: nobody knows what black and white are
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        x = (x - low) / (high - low).clamp(min=1e-9)
    levels: np.ndarray = x.clamp(0, 1).mul(255).round().byte().numpy()
    return levels if levels.shape[3] == 3 else levels[..., 0]


def png(pixels: np.ndarray) -> str:
    """One picture inside the page."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
