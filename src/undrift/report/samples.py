"""A few sample images of every client, after its feature skew and with its (perhaps wrong) labels."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import numpy as np
import torch

from undrift.federation.federation import Federation
from undrift.report.label_distribution import changed, class_names

MOST = 100  # clients on a page
EACH = 10  # images per client

STYLE = """<style>.clients{display:grid;grid-template-columns:repeat(auto-fill,minmax(21rem,1fr));gap:.3rem 1.5rem}
.clients figure{margin:0}.clients figcaption{font-size:.8rem;color:#59636e}.clients img{width:30px;height:30px;margin-right:2px;
image-rendering:pixelated;border-bottom:3px solid transparent}.clients img.wrong{border-color:#d1242f}</style>"""


def markup(federation: Federation, described: dict[str, Any]) -> str:
    """HTML with a figure per client. `described` comes from `label_distribution.describe`."""
    clients = range(min(len(described["sizes"]), MOST))
    shown = f"the first {MOST} of {federation.clients} clients" if federation.clients > MOST else "every client"
    head = (
        f"<p class='note'>Up to {EACH} samples of {shown}, evenly spaced in the order of their labels. Point at an image "
        "to read its label at this client. A red line marks a wrong label.</p>"
    )
    figures = "".join(client_figure(federation, described, client) for client in clients)
    return f"{STYLE}{head}<div class='clients'>{figures}</div>"


def client_figure(federation: Federation, described: dict[str, Any], client: int) -> str:
    rows, labels = federation.rows(client), federation.train_labels(client)
    order = np.argsort(labels, kind="stable")
    chosen = order[np.linspace(0, len(rows) - 1, min(EACH, len(rows))).round().astype(int)]
    wrong = changed(federation)[rows]
    images = "".join(
        f"<img alt='' title='{html.escape(class_names(federation)[labels[i]], quote=True)}' src='{png(pixels)}'"
        f"{' class=wrong' if wrong[i] else ''}>"
        for i, pixels in zip(chosen, pixels_of(federation, rows[chosen]))
    )
    kind = [described["domain"][client]] if described["domain"] else []
    kind += ["classes permuted"] if client in federation.permutations else []
    caption = " · ".join([federation.client_name(client), f"{len(rows)} samples", *kind])
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{images}</figure>"


def pixels_of(federation: Federation, rows: np.ndarray) -> np.ndarray:
    """Samples as uint8 (n, height, width) or (n, height, width, 3)."""
    x = federation.x[torch.from_numpy(np.ascontiguousarray(rows))]
    if federation.scale is not None:
        mean, std = (torch.tensor(values) for values in federation.scale)
        x = x * std + mean
    else:  # the user's own data: their range is not known, so each image is stretched to its own
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        x = (x - low) / (high - low).clamp(min=1e-9)
    levels: np.ndarray = x.clamp(0, 1).mul(255).round().byte().numpy()
    return levels if levels.shape[3] == 3 else levels[..., 0]


def png(pixels: np.ndarray) -> str:
    """An image as a data URL."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
