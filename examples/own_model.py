"""Your own network: any nn.Module that returns logits.

The script trains a small convolutional network with SCAFFOLD and gets the final model as a plain module. It prints the
recorded accuracy and the accuracy of that module on the same test set: they are equal.

    python examples/own_model.py
"""

from __future__ import annotations

import torch
from torch import nn

import undrift as ud


class Net(nn.Module):
    """8×8 digits. The last linear layer is the head: methods that need features take its input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def main() -> None:
    federation = ud.federate("digits", ud.partition.dirichlet(0.3), clients=8, seed=0)
    # Give the class: Undrift creates the network once, after seeding, so the same seed gives the same start.
    result = ud.run("scaffold", federation, model=Net, rounds=6, cohort=0.5, out=False)
    print(result.table())

    model = result.model
    with torch.no_grad():
        # Images are stored as height × width × channels. A network gets channels first.
        predictions = model(federation.test_x.permute(0, 3, 1, 2)).argmax(1)
    by_hand = (predictions == federation.test_y).double().mean().item()
    print(f"{type(model).__name__} with {sum(p.numel() for p in model.parameters())} parameters")
    print(f"recorded {result.accuracy:.4f}, by hand {by_hand:.4f}")


if __name__ == "__main__":
    main()
