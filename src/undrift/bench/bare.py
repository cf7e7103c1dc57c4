"""The bare loop: a round's training and nothing else. No import from `undrift`.

It does the same SGD steps over the same clients, longest first, on single-thread processes that live as long as `Bare`:
fused SGD, channels-last input, data resident (mapped) in every worker, no federated machinery. Every client starts from
the same initial parameters, and its trained parameters are discarded. Every optimization that pays is in it, each was
measured: one gather per epoch and slices of it, gradients set to none, no `.item()`, one optimizer for all clients, and
a malloc that keeps its pages (otherwise the 5 MB maps of the convolutions go back to the system at every step, which
costs 3 to 6 % of (b)).

    bare = Bare(works(x, y, hundred, thousand)["a"], workers=2)
    seconds = bare.round([3, 14, 15])
    bare.close()
"""

from __future__ import annotations

import gzip
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824",
              "MALLOC_TOP_PAD_": "67108864"}  # fmt: skip


@dataclass
class Work:
    """A workload: rows `x` (n, features) float32 and `y` int64, one index array per client, and the training settings."""

    name: str
    model: str
    cohort: int
    batch: int
    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    parts: Sequence[np.ndarray] = field(repr=False)
    epochs: int = 1
    lr: float = 0.01
    momentum: float = 0.9
    decay: float = 5e-4
    raw: bool = False  # True: the fused kernel without torch.optim.SGD around it (its Python is nearly half of (c))


def works(x: np.ndarray, y: np.ndarray, hundred: Sequence, thousand: Sequence, **more: Any) -> dict[str, Work]:
    """The three workloads: (a) and (b) with 100 clients, (c) with 1000."""
    return {"a": Work("a", "mlp", 10, 50, x, y, hundred, **more), "b": Work("b", "cnn", 10, 50, x, y, hundred, **more),
            "c": Work("c", "logistic", 100, 10, x, y, thousand, **more)}  # fmt: skip


def fashion(folder: str | None = None) -> tuple[np.ndarray, np.ndarray, str]:
    """(x, y, name) of the standardised training set of Fashion-MNIST; random data of its shape if it is missing."""
    raw = Path(folder or os.environ.get("UNDRIFT_DATA", ".")) / "FashionMNIST" / "raw"
    try:
        images, labels = (gzip.decompress((raw / f"train-{kind}-ubyte.gz").read_bytes())
                          for kind in ("images-idx3", "labels-idx1"))  # fmt: skip
    except OSError:
        draw = np.random.default_rng(0)
        return draw.standard_normal((60000, 784), dtype=np.float32), draw.integers(0, 10, 60000), "random"
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784).astype(np.float32) / 255
    return (x - x.mean()) / x.std(), np.frombuffer(labels, np.uint8, offset=8).astype(np.int64), "fashion-mnist"


def network(name: str) -> Any:
    from torch import nn

    if name == "logistic":
        return nn.Linear(784, 10)
    if name == "small":
        return nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def trainer(work: Work) -> Callable[[int, int], None]:
    """The training loop: a function (client, seed) that trains a client from the initial parameters."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y, model, draw = torch.from_numpy(work.x), torch.from_numpy(work.y), network(work.model), torch.Generator()
    parameters = list(model.parameters())
    initial = [p.detach().clone() for p in parameters]
    buffers = [torch.zeros_like(p) for p in initial]
    rule: dict[str, Any] = {"lr": work.lr, "momentum": work.momentum, "weight_decay": work.decay}
    sgd = torch.optim.SGD(parameters, **rule, fused=True)
    settings: dict[str, Any] = {**rule, "dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}

    def train(client: int, seed: int) -> None:
        with torch.no_grad():
            torch._foreach_copy_(parameters, initial)
        torch._foreach_zero_(buffers)
        sgd.state.clear()
        draw.manual_seed(seed)
        part = torch.from_numpy(work.parts[client])
        for _ in range(work.epochs):
            rows = part[torch.randperm(len(part), generator=draw)]
            inputs, labels = x.index_select(0, rows), y.index_select(0, rows)
            if work.model == "cnn":  # height × width × channels in memory: channels-last by its strides
                inputs = inputs.view(-1, 28, 28, 1).permute(0, 3, 1, 2)
            for batch, target in zip(inputs.split(work.batch), labels.split(work.batch)):
                loss = F.cross_entropy(model(batch), target)
                if work.raw:
                    torch._fused_sgd_(parameters, torch.autograd.grad(loss, parameters), buffers, **settings)
                else:
                    loss.backward()
                    sgd.step()
                    sgd.zero_grad()

    return train


class Bare:
    """The workers read clients from one shared pipe, longest first. They end when it is closed."""

    def __init__(self, work: Work, workers: int = 2) -> None:
        self.work, self.sizes, self.rounds = work, [len(part) for part in work.parts], 0
        plain = {name: value for name, value in vars(work).items() if name not in ("x", "y", "parts")}
        with tempfile.TemporaryDirectory() as folder:  # the workers map the files, then they are deleted
            arrays = {"x": work.x, "y": work.y, "rows": np.concatenate(work.parts), "ends": np.cumsum(self.sizes)}
            for name, array in arrays.items():
                np.save(f"{folder}/{name}.npy", array)
            clients, self.queue = os.pipe()
            self.done, back = os.pipe()
            command = [sys.executable, "-P", __file__, folder, json.dumps(plain)]
            self.workers = [subprocess.Popen(command, stdin=clients, stdout=back, env=os.environ | KEEP_PAGES)
                            for _ in range(workers)]  # fmt: skip
            os.close(clients)
            os.close(back)
            self.wait(workers)

    def round(self, cohort: Sequence[int]) -> float:
        """Train these clients; returns the seconds it took."""
        began, self.rounds = time.perf_counter(), self.rounds + 1
        for client in sorted(map(int, cohort), key=lambda k: -self.sizes[k]):
            os.write(self.queue, struct.pack("ii", client, self.rounds * len(self.sizes) + client))
        self.wait(len(cohort))
        return time.perf_counter() - began

    def wait(self, answers: int) -> None:
        while answers:
            if select.select([self.done], [], [], 5)[0]:
                answers -= len(os.read(self.done, answers)) or sys.exit("the workers of the bare loop died")
            elif any(worker.poll() is not None for worker in self.workers):
                sys.exit("a worker of the bare loop died")

    def close(self) -> None:
        os.close(self.queue)
        for worker in self.workers:
            worker.wait()
        os.close(self.done)


def worker(folder: str, plain: dict[str, Any]) -> None:
    x, y, rows, ends = (np.load(f"{folder}/{name}.npy", mmap_mode="c") for name in ("x", "y", "rows", "ends"))
    train = trainer(Work(x=x, y=y, parts=np.split(np.array(rows), ends[:-1]), **plain))
    train(int(np.argmax(np.diff(ends, prepend=0))), 0)  # warm up: choose kernels, claim memory
    os.write(1, b".")
    while record := os.read(0, 8):
        train(*struct.unpack("ii", record))
        os.write(1, b".")


if __name__ == "__main__":
    worker(sys.argv[1], json.loads(sys.argv[2]))
