"""FedNolowe: clients are weighted by their twice-normalised training loss.

Le et al.: FedNolowe: A normalized loss-based weighted aggregation strategy, PLOS ONE 2025.

    l_k = L_k / Σ_j L_j          A_k = (1 − l_k) / Σ_j (1 − l_j)

Because the l_k sum to one, A_k = (1 − l_k)/(m − 1): no client can get more than 1/(m − 1), whatever its loss. This is
uniform averaging with a mild tilt, and the number of samples has no effect.

`normalise` and `invert` are the variants of the paper's outlook: l by the sum (l1), scaled to 0…1 (minmax), or as the
deviation from the mean over the largest one (centre, in −1…1). The weight is 1 − l, 1/l, e^(−l), −ln l, or by rank (the
lowest loss gets m, the highest 1, ties their mean). `reverse` mirrors the weights at their mean, as a control.
The authors' code averages the loss over all local epochs. `loss=last` takes the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from undrift.contract.parts import Replies, Server, Weighting
from undrift.core.errors import BadRequest

LEAST = 1e-12  # 1/l and −ln l of a loss that is zero


@dataclass(frozen=True)
class FedNolowe(Weighting):
    loss: Literal["all", "last"] = "all"
    normalise: Literal["l1", "minmax", "centre"] = "l1"
    invert: Literal["subtract", "divide", "exp", "log", "rank"] = "subtract"
    reverse: bool = False

    def validate(self) -> None:
        if self.normalise == "centre" and self.invert in ("divide", "log"):
            raise BadRequest(
                f"fednolowe: centre gives negative losses, which {self.invert} cannot invert; "
                "use subtract, exp or rank with it"
            )

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        losses = torch.tensor(replies.loss if self.loss == "all" else replies.last, dtype=torch.float64)
        losses = losses - losses.min().clamp(max=0)  # a user's own loss function may be negative
        if self.loss == "last":  # the mean over all epochs is noted for every rule
            for client, loss in zip(replies.ids, replies.last):
                server.note("last_loss", loss, client)
        weights = self.inverted(self.normalised(losses))
        return (2 * weights.mean() - weights).clamp(min=0) if self.reverse else weights

    def normalised(self, losses: torch.Tensor) -> torch.Tensor:
        least, most, total = losses.min(), losses.max(), losses.sum()
        if total == 0 or least == most:
            return torch.full_like(losses, 1 / len(losses))
        if self.normalise == "l1":
            return losses / total
        if self.normalise == "minmax":
            return (losses - least) / (most - least)
        away = losses - losses.mean()
        return away / away.abs().max()

    def inverted(self, l: torch.Tensor) -> torch.Tensor:
        if self.invert == "subtract":
            return 1 - l
        if self.invert == "divide":
            return 1 / l.clamp(min=LEAST)
        if self.invert == "exp":
            return (-l).exp()
        if self.invert == "log":
            return -l.clamp(min=LEAST).log()
        above = (l[None, :] > l[:, None]).sum(1)
        equal = (l[None, :] == l[:, None]).sum(1)
        return above + (equal + 1) / 2
