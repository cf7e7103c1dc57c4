"""The next token at every place of a sequence: cross-entropy, token accuracy, perplexity. Padding does not count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from undrift.contract.task import Task
from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged
from undrift.tasks._shared import outputs_misfit, whole_numbers


@dataclass(frozen=True)
class Sequence(Task):
    """One token per place (y: whole numbers, `pad` where there is none), from logits [samples, places, tokens]. The loss
    of a sample is the mean over its tokens."""

    headline = "token_accuracy"
    least_loss = 0.0
    better = "higher"
    title = "TokAcc"
    percent = True
    provides = ("class_logits", "errors")
    whole_inputs = True
    pad: int = -1  # the target of places that do not count

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return self.per_sample(self.of_tokens(output, y), y)

    def of_tokens(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss at every place, 0 where there is no token."""
        return F.cross_entropy(output.transpose(1, 2), y, reduction="none", ignore_index=self.pad)

    def per_sample(self, values: torch.Tensor, y: Any) -> torch.Tensor:
        there = y != self.pad
        return values.masked_fill(~there, 0.0).sum(1) / there.sum(1).clamp(min=1)

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """token_accuracy and perplexity, over all tokens of all samples."""
        there = y != self.pad
        tokens = max(int(there.sum()), 1)
        hits = ((output.argmax(2) == y) & there).sum().item()
        nats = self.of_tokens(output, y).double().sum().item() / tokens
        return {"token_accuracy": hits / tokens, "perplexity": math.exp(min(nats, 700.0)) if nats == nats else nats}

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        return output.argmax(2)

    def error(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return self.per_sample((output.argmax(2) != y).float(), y)

    def count(self, y: Any) -> int:
        return int((y.values if isinstance(y, Ragged) else y).max()) + 1

    def example(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        return torch.zeros(2, *shape, dtype=torch.long), torch.zeros(2, *shape[:1], dtype=torch.long)

    def targets(self, x: Any, y: Any, who: str) -> Any:
        y = whole_numbers(super().targets(x, y, who), who, "tokens")
        if isinstance(y, Ragged):
            if y.pad != self.pad:
                raise BadRequest(
                    f"{who} pads its targets with {y.pad:g}, and the task ignores {self.pad}; say sequence(pad={y.pad:g})"
                )
            columns = [column for _, column in x.items()] if isinstance(x, Columns) else [x]
            for one in columns:
                if isinstance(one, Ragged) and not torch.equal(one.lengths, y.lengths):
                    place = int((one.lengths != y.lengths).nonzero()[0])
                    raise BadRequest(
                        f"sequence {place} of {who} has {int(one.lengths[place])} tokens and {int(y.lengths[place])} "
                        "targets; give one target per token"
                    )
        elif y.dim() != 2:
            raise BadRequest(
                f"{who} has targets of shape {tuple(y.shape)}; give one token per place, (samples, places)"
            )
        return y

    def in_range(self, y: Any, who: str) -> None:
        tokens = y.values if isinstance(y, Ragged) else y
        if tokens.numel() and (((tokens < 0) & (tokens != self.pad)).any() or tokens.max() >= self.outputs):
            raise BadRequest(
                f"tokens must lie in 0…{self.outputs - 1}, or be {self.pad} where there is none; {who} has "
                f"{int(tokens.min())} to {int(tokens.max())}"
            )
        if self.pad >= 0 and isinstance(y, torch.Tensor) and bool(inside := self.padded_inside(y)):
            raise BadRequest(
                f"the pad value {self.pad} is a token: sample {inside[0]} of {who} has it before others; choose a value that is "
                "none, such as sequence(pad=-1)"
            )

    def padded_inside(self, y: torch.Tensor) -> list[int]:
        """The samples in which a token follows the pad value."""
        empty = y == self.pad
        return (empty[:, :-1] & ~empty[:, 1:]).any(1).nonzero().flatten().tolist()

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        wanted = (len(y), y.size(1) if isinstance(y, torch.Tensor) else y.longest, self.outputs)
        return outputs_misfit(output, wanted, "the logits of all tokens at every place", data, axis=2)
