"""Which factor of a low-rank adapter W + s·B·A travels.

`ffalora()` is FFA-LoRA (Sun et al.: Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024): A keeps its
random initial values at all clients and only B is trained, so half of the adapter travels and the mean is exact:

    Σ p_k (B_k A) = (Σ p_k B_k) A

`fedsalora()` is FedSA-LoRA (Guo et al.: Selective Aggregation for Low-Rank Adaptation in Federated Learning, ICLR 2025):
both are trained, A is averaged and B stays at the client, because A learns what clients have in common.

The trap that both avoid: the mean of A times the mean of B is not the mean of the products. With B_1 = 1, A_1 = 1 and
B_2 = −1, A_2 = −1 both clients have the product 1, and the means multiply to 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from undrift.contract.parts import Private
from undrift.core.low_rank import adapters
from undrift.core.vector import Layout


@dataclass(frozen=True)
class FFALoRA(Private):
    """A is not trained: it is frozen like the base."""

    needs: ClassVar = ("adapters",)
    freezes: ClassVar = ("*.lora_A.*",)

    def entries(self, layout: Layout) -> Iterable[str]:
        return ()


@dataclass(frozen=True)
class FedSALoRA(Private):
    """B stays at the client."""

    needs: ClassVar = ("adapters",)

    def entries(self, layout: Layout) -> Iterable[str]:
        return [adapter.B.name for adapter in adapters(layout)]
