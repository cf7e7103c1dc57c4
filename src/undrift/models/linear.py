"""Models without convolutions: logistic regression and the multilayer perceptron. They flatten samples of any shape."""

from __future__ import annotations

from torch import nn

from undrift.core.errors import BadRequest
from undrift.models._layers import Shape, check_norm, entries, norm_layer


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer. With cross-entropy the loss is convex."""
    return nn.Sequential(nn.Flatten(), nn.Linear(entries(shape), classes))


def mlp(shape: Shape, classes: int, *widths: int, norm: str | None = None, dropout: float = 0.0) -> nn.Module:
    """Multilayer perceptron: linear, norm, ReLU and dropout per width, then the head. Without widths one hidden layer
    of 100."""
    widths = widths or (100,)
    if any(isinstance(width, bool) or not isinstance(width, int) or width < 1 for width in widths):
        raise BadRequest(f"widths of mlp must be whole numbers of at least 1, not {list(widths)}")
    if not 0 <= dropout < 1:
        raise BadRequest(f"dropout of mlp must be at least 0 and below 1, not {dropout}")
    norm = check_norm("mlp", norm, optional=True)
    layers: list[nn.Module] = [nn.Flatten()]
    before = entries(shape)
    for width in widths:
        layers.append(nn.Linear(before, width))
        if norm:
            layers.append(norm_layer(norm, width, dimensions=1))
        layers.append(nn.ReLU())
        if dropout:
            layers.append(nn.Dropout(dropout))
        before = width
    return nn.Sequential(*layers, nn.Linear(before, classes))
