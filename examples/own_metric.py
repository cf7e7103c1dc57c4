"""Your own metric: a function of (logits, y) that returns one number.

It is recorded together with accuracy: for the global model (G) and for every evaluated client (L1, L2). The script prints
accuracy and top-two accuracy per stage, and the number of recorded pairs. Top-two accuracy is at least as high as
accuracy in every pair.

    python examples/own_metric.py
"""

from __future__ import annotations

import torch

import undrift as ud


def top_two(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The share of samples whose class is among the two largest logits."""
    return (logits.topk(2, dim=1).indices == y[:, None]).any(1).double().mean()


PAIRS = """
    SELECT a.stage, a.data, a.value, b.value FROM metrics a JOIN metrics b
    ON a.round = b.round AND a.client IS b.client AND a.stage = b.stage AND a.data = b.data
    WHERE a.metric = 'accuracy' AND b.metric = 'top_two' ORDER BY a.stage, a.data
"""


def main() -> None:
    result = ud.run("fliu", clients=8, model="mlp(16)", rounds=5, metrics=[top_two], out=False)
    pairs = result.rows(PAIRS)
    for stage, data in sorted({(stage, data) for stage, data, _, _ in pairs}):
        chosen = [(first, two) for s, d, first, two in pairs if (s, d) == (stage, data)]
        first, two = (sum(column) / len(chosen) for column in zip(*chosen, strict=True))
        print(f"{stage:2} on {data:6}: accuracy {first:.3f}, top two {two:.3f}")
    print(f"{len(pairs)} pairs, top two at least accuracy in {sum(two >= first for _, _, first, two in pairs)}")


if __name__ == "__main__":
    main()
