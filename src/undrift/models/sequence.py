"""Networks over token sequences: whole numbers (N, T) in, logits of the next token at every position (N, T, tokens) out.

Both read from left to right: what stands after a position, padding included, does not change its logits. A token below 0 is
padding and read as token 0.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from undrift.core.errors import BadRequest
from undrift.models._layers import Misfit, Shape, whole

CONTEXT = 256  # positions of `gpt` where the length of the sequences is not known


def embedded(table: nn.Embedding, x: torch.Tensor, network: str) -> torch.Tensor:
    """The tokens' vectors. What the table does not have is refused; on a GPU only PyTorch notices it."""
    try:
        found: torch.Tensor = table(x.clamp(min=0))
    except IndexError:
        raise BadRequest(
            f"{network} has the tokens 0…{table.num_embeddings - 1}, and a sequence holds {int(x.max())}; pad with a number "
            f"below 0, or name more tokens, as in sequence(outputs={int(x.max()) + 1})"
        ) from None
    return found


class Lstm(nn.Module):
    def __init__(self, tokens: int, embedding: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.lstm(embedded(self.embedding, x, "lstm"))[0])
        return logits


def lstm(shape: Shape, classes: int, embedding: int = 8, width: int = 256, layers: int = 2) -> nn.Module:
    """LEAF's network for Shakespeare (Caldas et al., "LEAF: A Benchmark for Federated Settings"): an embedding of 8, two
    LSTM layers of 256, a linear layer. 819,920 parameters with LEAF's 80 characters.

    PyTorch's LSTM has two bias vectors per layer where TensorFlow's has one: 2,048 parameters more than LEAF's 817,872.
    LEAF predicts one character after 80. Here every position predicts the next, which trains on all of them at once.
    """
    needs_tokens("lstm", shape)
    for name, value in (("embedding", embedding), ("width", width), ("layers", layers)):
        whole("lstm", name, value)
    return Lstm(classes, embedding, width, layers)


class Block(nn.Module):
    """Causal self-attention and a perceptron of four times the width, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        parts = self.query_key_value(self.before_attention(x)).view(samples, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(found.transpose(1, 2).reshape(samples, length, width))
        y: torch.Tensor = x + self.perceptron(self.before_perceptron(x))
        return y


class Gpt(nn.Module):
    def __init__(self, tokens: int, layers: int, width: int, heads: int, context: int, tied: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, context = x.shape[1], self.positions.num_embeddings
        if length > context:
            raise BadRequest(
                f"gpt has {context} positions but a sequence has {length} tokens; give gpt(context={length})"
            )
        places = self.positions(torch.arange(length, device=x.device))
        logits: torch.Tensor = self.head(self.norm(self.blocks(embedded(self.tokens, x, "gpt") + places)))
        return logits


def gpt(
    shape: Shape,
    classes: int,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    context: int | None = None,
    tied: bool = False,
) -> nn.Module:
    """A transformer in the form of GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners"), with
    GPT-2's initial values. `context` is the longest sequence. 124,439,808 parameters with 12 layers, width 768,
    1,024 positions, 50,257 tokens and tied=true, as published.

    tied=true uses the embedding of the tokens as the last layer, as GPT-2 does. Methods with a head of its own need false.
    """
    length = needs_tokens("gpt", shape)
    context = (length or CONTEXT) if context is None else context
    for name, value in (("layers", layers), ("width", width), ("heads", heads), ("context", context)):
        whole("gpt", name, value)
    if width % heads:
        raise BadRequest(f"width of gpt must be a multiple of its heads, not {width} for {heads} heads")
    return Gpt(classes, layers, width, heads, context, bool(tied))


def needs_tokens(model: str, shape: Shape) -> int | None:
    """The length of the sequences, where it is known."""
    if len(shape) > 1:
        raise Misfit(f"{model} needs sequences of tokens")
    return shape[0] if shape else None
