"""The label distribution of a federation: how many samples of which class each client has, as numbers and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import entr

from undrift.federation import images
from undrift.federation.federation import Federation

MOST = 1000  # clients that are described; a lazy federation can have a million


def describe(federation: Federation) -> dict[str, Any]:
    """Sizes, class counts, label noise and domains of the clients, and how much their label distributions differ."""
    clients = range(min(federation.clients, MOST))
    counts = np.array([federation.counts(client) for client in clients])
    sizes = counts.sum(1)
    shares = counts / np.maximum(sizes[:, None], 1)
    wrong = changed(federation)
    noise = [float(wrong[federation.rows(client)].mean()) for client in clients]
    domain, names = federation.record.get("domain"), list(federation.domains)
    return {
        "data": federation.name,
        "clients": federation.clients,
        "names": list(federation.names) or None,
        "sizes": sizes.tolist(),
        "class_counts": counts.tolist(),
        "classes_per_client": (counts > 0).sum(1).tolist(),
        "hellinger": mean_hellinger(shares),
        "gini": gini(sizes),
        "noise_rate": noise if (federation.has_labels and federation.knows_clean) or any(noise) else None,
        "permuted": sorted(federation.permutations),
        "domain": None if domain is None else [names[domain[client]] for client in clients],
        "test_slices": [len(federation.slice(client)[0]) for client in clients],
        "record": {name: value for name, value in federation.provenance().items() if name != "sizes"},
    }


def class_names(federation: Federation) -> Sequence[str]:
    """Of the columns of the class counts: without classes all samples are in one."""
    return federation.labels if federation.has_labels else ("all",)


def changed(federation: Federation) -> np.ndarray:
    """Which training samples have another target than before the noise."""
    now, before = federation.y, federation.clean_y
    if now is before or not isinstance(now, torch.Tensor):
        return np.zeros(len(now), dtype=bool)
    differs: np.ndarray = (now != before).reshape(len(now), -1).any(1).numpy()
    return differs


def facts(federation: Federation, clients: Sequence[int]) -> dict[str, dict[int, float]]:
    """Facts that a client's weight can be compared with, {fact: {client: value}}, of the first thousand clients."""
    classes = len(class_names(federation))
    all_shares = np.bincount(federation.class_of(federation.y).numpy(), minlength=classes) / len(federation.y)
    known: dict[str, dict[int, float]] = {
        "size": {},
        "label entropy": {},
        "label Hellinger distance": {},
    }
    if federation.has_labels and (federation.knows_clean or changed(federation).any()):
        known["noise rate"] = {}
    for client in clients[:MOST]:
        y = federation.train_labels(client)
        shares = np.bincount(y, minlength=classes) / max(1, len(y))
        known["size"][client] = len(y)
        known["label entropy"][client] = float(entr(shares).sum()) if len(y) else 0.0
        known["label Hellinger distance"][client] = float(np.sqrt(max(0.0, 1 - np.sqrt(shares * all_shares).sum())))
        if "noise rate" in known:
            known["noise rate"][client] = float((y != federation.clean_y.numpy()[federation.rows(client)]).mean())
    return known


def mean_hellinger(shares: np.ndarray) -> float:
    """Mean pairwise Hellinger distance of the clients' label shares: 0 if all are equal, 1 if no two share a class."""
    if len(shares) < 2:
        return 0.0
    roots = np.sqrt(shares)
    affinity = np.clip(roots @ roots.T, 0, 1)
    above = np.triu_indices(len(shares), 1)
    return float(np.sqrt(1 - affinity[above]).mean())


def gini(sizes: np.ndarray) -> float:
    """Gini coefficient of the sizes: 0 if all are equal, close to 1 if one client has nearly all samples."""
    ordered = np.sort(sizes)
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * max(ordered.sum(), 1)))


def terminal(federation: Federation, described: dict[str, Any], most: int = 24) -> str:
    """The description as text: a bar per class for the first `most` clients, then the numbers."""
    blocks = " ▁▂▃▄▅▆▇█"
    counts = np.array(described["class_counts"])
    peak = max(1, counts.max())
    names = described["names"] or [str(client) for client in range(len(counts))]
    wide = max(7, *(len(name) for name in names[:most])) if most else 7
    bars_of = f"classes 0…{federation.classes - 1}" if federation.has_labels else federation.task.name
    lines = [f"{'client':>{wide}} {'samples':>8}  {bars_of}"]
    for name, row in zip(names, counts[:most]):
        bars = "".join(blocks[int(np.ceil(8 * n / peak))] for n in row)
        lines.append(f"{name:>{wide}} {row.sum():>8}  {bars}")
    if len(counts) > most:
        lines.append(f"{'…':>{wide}} {len(counts) - most} more")
    sizes = np.array(described["sizes"])
    classes = described["classes_per_client"]
    lines += [
        "",
        f"sizes {sizes.min()} … {sizes.max()}, median {int(np.median(sizes))}, Gini {described['gini']:.2f}",
    ]
    if federation.has_labels:
        lines += [
            f"classes per client {min(classes)} … {max(classes)}, "
            f"mean Hellinger distance of label shares {described['hellinger']:.2f}",
            f"wrong labels {noise_text(federation, described)}",
        ]
    if described["permuted"]:
        lines.append(f"{len(described['permuted'])} clients have permuted class labels")
    if described["domain"]:
        count_of = {name: described["domain"].count(name) for name in federation.domains}
        lines.append("domains: " + ", ".join(f"{name} ({count} clients)" for name, count in count_of.items()))
    if empty := sum(size == 0 for size in described["test_slices"]):
        lines.append(f"{empty} clients have an empty test slice and are left out of {federation.task.shown.title}(L)")
    return "\n".join(lines)


def noise_text(federation: Federation, described: dict[str, Any]) -> str:
    """The share of wrong labels. Nobody knows which labels of a user's own data are wrong."""
    if described["noise_rate"] is None:
        return "unknown: nobody has checked the labels of these data"
    noise, sizes = np.array(described["noise_rate"]), np.array(described["sizes"])
    spread = f" ({100 * noise.min():.1f} … {100 * noise.max():.1f} % per client)" if noise.any() else ""
    more = "" if federation.knows_clean else " added to those of the data, which are unknown"
    return f"{100 * noise @ sizes / sizes.sum():.1f} %{spread}{more}"


def sections(federation: Federation, described: dict[str, Any]) -> list[Any]:
    """Sections of a page: numbers, a bubble per non-zero cell, sizes, wrong labels and sample images if there are any."""
    from undrift.report import samples
    from undrift.report.plots import figure, label_bubbles

    clients = described["names"] or list(range(len(described["sizes"])))
    names = [federation.client_name(client) for client in range(len(described["sizes"]))]
    bars = figure("samples per client", "client", "samples")
    bars.add_bar(x=clients, y=described["sizes"])
    numbers = terminal(federation, described, most=0).partition("\n\n")[2]
    parts = [
        ("numbers", numbers),
        ("labels", label_bubbles(described["class_counts"], class_names(federation), names)),
        ("sizes", bars),
    ]
    if any(described["noise_rate"] or ()):
        noise = figure("share of wrong labels per client", "client", "share")
        noise.add_bar(x=clients, y=described["noise_rate"])
        parts.append(("noise", noise))
    if images.is_image(federation.x):
        parts.append(("samples", ("html", samples.markup(federation, described))))
    return parts
