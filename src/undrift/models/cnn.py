"""Plain convolutional networks of the papers: FedAvg's, FedDyn's, FedBSS's and FedNolowe's.

FedBSS is Xu et al., "Federated Learning with Sample-level Client Drift Mitigation".
FedNolowe is Le et al., "FedNolowe: A normalized loss-based weighted aggregation strategy", PLOS ONE 2025.
"""

from __future__ import annotations

from torch import nn

from undrift.models._layers import Shape, after, channels_and_side, check_norm, norm_layer


def cnn(shape: Shape, classes: int, padded: bool = True, extra: bool | None = None) -> nn.Module:
    """The CNN of FedAvg (McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data"):
    conv5-32, pool, conv5-64, pool, 512, classes. 1,663,370 parameters at 1×28×28 and ten classes.

    padded=False is PFLlib's version (582,026). Colour images get one more 3×3-64 convolution before the linear layers
    (FLIU's form for CIFAR), unless `extra` says otherwise.
    """
    channels, height, width = channels_and_side("cnn", shape)
    pad = 2 if padded else 0
    sides = [after(after(after(after(side, 5, pad), 2, stride=2), 5, pad), 2, stride=2) for side in (height, width)]
    more = [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()] if (channels == 3 if extra is None else extra) else []
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=pad), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=pad), nn.ReLU(), nn.MaxPool2d(2),
        *more,
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 512), nn.ReLU(),
        nn.Linear(512, classes),
    )  # fmt: skip


def cnn_feddyn(shape: Shape, classes: int) -> nn.Module:
    """FedDyn's CNN for CIFAR (Acar et al., "Federated Learning Based on Dynamic Regularization"): conv5-64, pool,
    conv5-64, pool, 384, 192, classes, no norm. 797,962 parameters at 3×32×32 and ten classes."""
    channels, height, width = channels_and_side("cnn-feddyn", shape)
    sides = [after(after(after(after(side, 5), 2, stride=2), 5), 2, stride=2) for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 384), nn.ReLU(),
        nn.Linear(384, 192), nn.ReLU(),
        nn.Linear(192, classes),
    )  # fmt: skip


def cnn_fedbss(shape: Shape, classes: int) -> nn.Module:
    """FedBSS's CNN for Fashion-MNIST: as `cnn`, but with 3×3 pools of stride 2 (28 → 14 → 7)."""
    channels, height, width = channels_and_side("cnn-fedbss", shape)
    sides = [after(after(side, 3, 1, stride=2), 3, 1, stride=2) for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 512), nn.ReLU(),
        nn.Linear(512, classes),
    )  # fmt: skip


def cnn3(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """FedNolowe's CNN for Fashion-MNIST: conv3-32/64/128 with norm and pool, 512 with dropout 0.3; 688,586 weights."""
    check_norm("cnn3", norm)
    channels, height, width = channels_and_side("cnn3", shape)
    sides = [after(after(after(side, 2, stride=2), 2, stride=2), 2, stride=2) for side in (height, width)]
    layers: list[nn.Module] = []
    for before, filters in ((channels, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, filters, 3, padding=1), norm_layer(norm, filters), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(128 * sides[0] * sides[1], 512), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(512, classes),
    )  # fmt: skip


def vgg9(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """FedNolowe's VGG for CIFAR-10, after Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
    Image Recognition": conv3 [64, 64], [128, 128], [256, 256] with norm and pools, 512 twice. 3,512,650 parameters."""
    check_norm("vgg9", norm)
    channels, height, width = channels_and_side("vgg9", shape)
    sides = [after(after(after(side, 2, stride=2), 2, stride=2), 2, stride=2) for side in (height, width)]
    layers: list[nn.Module] = []
    before = channels
    for filters in (64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(before, filters, 3, padding=1), norm_layer(norm, filters), nn.ReLU()]
            before = filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(256 * sides[0] * sides[1], 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, classes),
    )  # fmt: skip
