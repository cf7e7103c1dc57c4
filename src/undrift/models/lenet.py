"""LeNet-5 (LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998), and
FedNolowe's wider version with BatchNorm (Le et al., "FedNolowe: A normalized loss-based weighted aggregation strategy",
2025)."""

from __future__ import annotations

from torch import nn

from undrift.core.errors import BadRequest
from undrift.models._layers import Shape, after, channels_and_side, check_norm, norm_layer


def lenet5(shape: Shape, classes: int, activation: str = "relu") -> nn.Module:
    """LeNet-5: conv5-6, pool, conv5-16, pool, 120, 84, classes. 61,706 parameters at 1×28×28 and ten classes.

    Images below 32×32 are padded by 2, as the original's 28×28 digits were. ReLU and max pooling are today's practice.
    activation="tanh" is the network of 1998, with average pooling.
    """
    if activation not in ("relu", "tanh"):
        raise BadRequest(f"activation of lenet5 must be relu or tanh, not {activation!r}")
    channels, height, width = channels_and_side("lenet5", shape)
    padding = 2 if min(height, width) < 32 else 0
    sides = [after(after(after(after(side, 5, padding), 2, stride=2), 5), 2, stride=2) for side in (height, width)]
    act, pool = (nn.ReLU, nn.MaxPool2d) if activation == "relu" else (nn.Tanh, nn.AvgPool2d)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding), act(), pool(2),
        nn.Conv2d(6, 16, 5), act(), pool(2),
        nn.Flatten(),
        nn.Linear(16 * sides[0] * sides[1], 120), act(),
        nn.Linear(120, 84), act(),
        nn.Linear(84, classes),
    )  # fmt: skip


def lenet5_bn(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """FedNolowe's LeNet: conv5-32, conv5-64 with norm and pool, 256 with dropout ½, 128; 348,874 weights at 1×28×28."""
    check_norm("lenet5-bn", norm)
    channels, height, width = channels_and_side("lenet5-bn", shape)
    sides = [after(after(after(after(side, 5), 2, stride=2), 5), 2, stride=2) for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5), norm_layer(norm, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), norm_layer(norm, 64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 256), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(256, 128), nn.ReLU(),
        nn.Linear(128, classes),
    )  # fmt: skip
