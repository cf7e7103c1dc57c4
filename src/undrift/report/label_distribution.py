"""Who holds what, in numbers, in the terminal and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import entropy

from undrift.federation import images
from undrift.federation.federation import Federation

MOST = 1000  # clients that are looked at; a lazy federation may have a million


def describe(federation: Federation) -> dict[str, Any]:
    """Sizes, class counts, what is wrong with labels and pictures, and how unlike the clients are."""
    clients = range(min(federation.clients, MOST))
    counts = np.array([federation.counts(client) for client in clients])
    sizes = counts.sum(1)
    shares = counts / np.maximum(sizes[:, None], 1)
    wrong = federation.y.numpy() != federation.clean_y.numpy()
    domain, names = federation.record.get("domain"), list(federation.domains)
    return {
        "data": federation.name,
        "clients": federation.clients,
        "sizes": sizes.tolist(),
        "class_counts": counts.tolist(),
        "classes_per_client": (counts > 0).sum(1).tolist(),
        "hellinger": mean_hellinger(shares),
        "gini": gini(sizes),
        "noise_rate": [float(wrong[federation.rows(client)].mean()) for client in clients],
        "permuted": sorted(federation.permutations),
        "domain": None if domain is None else [names[domain[client]] for client in clients],
        "test_slices": [len(federation.slice(client)[0]) for client in clients],
        "record": {name: value for name, value in federation.provenance().items() if name != "sizes"},
    }


def facts(federation: Federation, clients: Sequence[int]) -> dict[str, dict[int, float]]:
    """What a client's weight may be compared with: {fact: {client: value}}, of the first thousand clients."""
    everyone = np.bincount(federation.y.numpy(), minlength=federation.classes) / len(federation.y)
    found: dict[str, dict[int, float]] = {
        "size": {}, "label entropy": {}, "label Hellinger distance": {}, "noise rate": {},
    }  # fmt: skip
    for client in clients[:MOST]:
        y = federation.train_labels(client)
        shares = np.bincount(y, minlength=federation.classes) / max(1, len(y))
        found["size"][client] = len(y)
        found["label entropy"][client] = float(entropy(shares)) if len(y) else 0.0
        found["label Hellinger distance"][client] = float(np.sqrt(max(0.0, 1 - np.sqrt(shares * everyone).sum())))
        found["noise rate"][client] = float((y != federation.clean_y.numpy()[federation.rows(client)]).mean())
    return found


def mean_hellinger(shares: np.ndarray) -> float:
    """Mean pairwise Hellinger distance of the clients' label shares: 0 all alike, 1 nothing in common."""
    if len(shares) < 2:
        return 0.0
    roots = np.sqrt(shares)
    affinity = np.clip(roots @ roots.T, 0, 1)
    above = np.triu_indices(len(shares), 1)
    return float(np.sqrt(1 - affinity[above]).mean())


def gini(sizes: np.ndarray) -> float:
    """Inequality of the sizes: 0 all equal, towards 1 one client has everything."""
    ordered = np.sort(sizes)
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * max(ordered.sum(), 1)))


def terminal(federation: Federation, found: dict[str, Any], most: int = 24) -> str:
    blocks = " ▁▂▃▄▅▆▇█"
    counts = np.array(found["class_counts"])
    peak = max(1, counts.max())
    lines = [f"{'client':>7} {'samples':>8}  classes 0…{federation.classes - 1}"]
    for client, row in enumerate(counts[:most]):
        bars = "".join(blocks[int(np.ceil(8 * n / peak))] for n in row)
        lines.append(f"{client:>7} {row.sum():>8}  {bars}")
    if len(counts) > most:
        lines.append(f"{'…':>7} {len(counts) - most} more")
    sizes = np.array(found["sizes"])
    lines += ["", f"sizes {sizes.min()} … {sizes.max()}, median {int(np.median(sizes))}, Gini {found['gini']:.2f}",
              f"classes per client {min(found['classes_per_client'])} … {max(found['classes_per_client'])}, "
              f"mean Hellinger distance of label shares {found['hellinger']:.2f}"]  # fmt: skip
    noise = np.array(found["noise_rate"])
    spread = f" ({100 * noise.min():.1f} … {100 * noise.max():.1f} % per client)" if noise.any() else ""
    lines.append(f"wrong labels {100 * noise @ sizes / sizes.sum():.1f} %{spread}")
    if found["permuted"]:
        lines.append(f"{len(found['permuted'])} clients call the classes by permuted names")
    if found["domain"]:
        held = {name: found["domain"].count(name) for name in federation.domains}
        lines.append("domains: " + ", ".join(f"{name} ({count} clients)" for name, count in held.items()))
    if empty := sum(size == 0 for size in found["test_slices"]):
        lines.append(f"{empty} clients have an empty test slice and are left out of Acc(L)")
    return "\n".join(lines)


def sections(federation: Federation, found: dict[str, Any]) -> list[Any]:
    """The page: numbers, a bubble per non-zero cell, sizes, wrong labels where there are any, sample pictures."""
    from undrift.report import samples
    from undrift.report.plots import figure, holdings

    clients = list(range(len(found["sizes"])))
    bars = figure("samples per client", "client", "samples")
    bars.add_bar(x=clients, y=found["sizes"])
    numbers = terminal(federation, found, most=0).partition("\n\n")[2]
    parts = [("numbers", numbers), ("holdings", holdings(found["class_counts"], federation.labels)), ("sizes", bars)]
    if any(found["noise_rate"]):
        noise = figure("share of wrong labels per client", "client", "share")
        noise.add_bar(x=clients, y=found["noise_rate"])
        parts.append(("noise", noise))
    return parts + ([("samples", ("html", samples.markup(federation, found)))] if images.is_image(federation.x) else [])
