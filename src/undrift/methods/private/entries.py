"""Which entries of the vector never leave a client.

`norms()` is FedBN (Li et al.: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021),
`head()` is FedPer (Arivazhagan et al.: Federated Learning with Personalization Layers, 2019). `named("pattern")` takes
the entries whose name matches a shell pattern: `named("*lora*")` keeps adapters at the client.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from undrift.contract.parts import Private
from undrift.core.errors import BadRequest
from undrift.core.vector import Layout


@dataclass(frozen=True)
class Norms(Private):
    """Parameters and statistics of every normalisation layer, integer buffers included."""

    def entries(self, layout: Layout) -> Iterable[str]:
        names = [name for name in layout.names() if name.rpartition(".")[0] in layout.norms]
        if not names:
            raise BadRequest(
                "the model has no normalisation layer, so norms() has nothing to keep private; use a model that has one, "
                "such as resnet8, or another method"
            )
        return names


@dataclass(frozen=True)
class Head(Private):
    """The last linear layer."""

    def entries(self, layout: Layout) -> Iterable[str]:
        if layout.head is None:
            raise BadRequest(
                "the model's logits are not the output of a linear layer, so head() finds no head; use another model, "
                "or another method"
            )
        names = [name for name in layout.names() if name.rpartition(".")[0] == layout.head]
        if not names:
            raise BadRequest(
                f"the head {layout.head} is frozen, so head() has nothing to keep private; train it, or use another method"
            )
        return names


@dataclass(frozen=True)
class Named(Private):
    """Entries whose name matches a shell pattern."""

    pattern: str

    def entries(self, layout: Layout) -> Iterable[str]:
        names = [name for name in layout.names() if fnmatch(name, self.pattern)]
        if not names:
            raise BadRequest(
                f"no entry of the model matches {self.pattern!r}; give a pattern for {', '.join(layout.names()[:8])} …"
            )
        return names
