"""The task: what a network's output means, beside the parts of a method.

A task is a frozen dataclass. It says the loss of every sample, how good an output is, which number is the headline, and
what it provides to parts: "labels" (one class per sample), "class_logits" (scores of classes, for every sample or for
every token or pixel of it) and "errors" (how wrong every sample is, from 0 to 1). A part declares what it `needs`; a run
whose task lacks it is refused before round 0. `undrift.tasks` has the shipped ones, docs/tutorial.md one of a user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch

from undrift.contract.parameters import Range, check_parameters
from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.headline import Headline
from undrift.core.text import spell

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class Task:
    """`loss` and `measure` are all that a task must define. `y` is a tensor, or columns of tensors (`y["mask"]`);
    sequences are padded."""

    headline: ClassVar[str] = "loss"  # the metric that ranks: a name that `measure` returns, or "loss"
    better: ClassVar[str] = "lower"  # or "higher"
    title: ClassVar[str] = ""  # of the headline in tables; its name if empty
    percent: ClassVar[bool] = False  # the headline is a share, shown as a percentage
    provides: ClassVar[Sequence[str]] = ()
    least_loss: ClassVar[float] = -math.inf  # a smaller one is a lie
    whole_inputs: ClassVar[bool] = False  # whole numbers in x stay whole (tokens), also in a plain tensor
    # How many numbers a network gives per prediction; 0: as many as the data ask for.
    outputs: Annotated[int, Range(least=0)] = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if is_dataclass(self):
            check_parameters(self)

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @property
    def spelled(self) -> str:
        """The text that makes it again."""
        return spell(self)

    @property
    def shown(self) -> Headline:
        """Its headline, with all that a table needs to know about it."""
        return Headline(self.headline, self.better, self.title or self.headline, self.percent)

    # ---- what a task must define -----------------------------------------------------------------------------

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        """One number per sample, with a gradient."""
        raise NotImplementedError

    def mean_loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        """The mean over the samples, where it has a form of its own."""
        return self.loss(output, y).mean()

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """Metrics by name. What is undefined is left out."""
        return {}

    # ---- what it may define ----------------------------------------------------------------------------------

    def quick_measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """The same without metrics that take long: between two full evaluations."""
        return self.measure(output, y)

    def labels(self, y: Any) -> torch.Tensor | None:
        """One class per sample, where there is one."""
        return None

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        """What a person would call the prediction: a class, a value, a mask."""
        return output

    def error(self, output: torch.Tensor, y: Any) -> torch.Tensor | None:
        """One number from 0 (right) to 1 (wrong) per sample, where there is one."""
        return None

    def class_logits(self, output: torch.Tensor) -> torch.Tensor:
        """The output with the classes as last axis, where the task provides "class_logits"."""
        return output

    def per_sample(self, values: torch.Tensor, y: Any) -> torch.Tensor:
        """The mean of one number per prediction (token, pixel) over each sample."""
        return values

    def count(self, y: Any) -> int:
        """How many outputs the targets ask for, where the data do not say."""
        return 1

    def example(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Two samples of this shape (channels first) with targets, all 0: to try a network on where no data are."""
        return torch.zeros(2, *shape), torch.zeros(2, dtype=torch.long)

    def targets(self, x: Any, y: Any, who: str) -> Any:
        """Targets as a federation stores them: whole numbers as int64, others as float32. Refused where they are NaN or
        do not fit the inputs; `who` has them."""
        if len(x) != len(y):
            raise BadRequest(f"{who} has {len(x)} samples but {len(y)} targets; give one per sample")
        return samples.mapped(y, lambda leaf: numbers(leaf, who))

    def in_range(self, y: Any, who: str) -> None:
        """Refuse targets beyond the number of outputs, which is known now."""

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        """What is wrong with a network's output for these targets, as the end of "the model NAME …"; empty if nothing."""
        if len(output) != len(y):
            return f"returns an output of shape {tuple(output.shape)} for {len(y)} samples; return one row per sample"
        return ""

    def completed(self, own: Task) -> Task:
        """The same task for data that come with `own`: what is not said is taken from there."""
        return self

    def with_outputs(self, outputs: int) -> Self:
        """The same task with the number of outputs that the data have."""
        return replace(self, outputs=outputs)


def numbers(y: torch.Tensor, who: str) -> torch.Tensor:
    """Targets as int64 or float32, finite."""
    if y.is_complex():
        raise BadRequest(f"{who} has complex targets; give real numbers")
    if not y.is_floating_point():
        return y.long()
    y = y.float()
    if not torch.isfinite(y).all():
        place = int((~torch.isfinite(y.reshape(len(y), -1)).all(1)).nonzero()[0])
        raise BadRequest(f"{who} has targets that are NaN or infinite, first in sample {place}; remove or fill them")
    return y
