"""The works on FedJAX: its FedAvg over `for_each_client`, with the backend named by the variant.

`jit` steps client after client and lets XLA use all cores inside a step; `pmap` steps as many clients as there are
devices at once, here two halves of the CPU (run.py sets XLA's device count). Both are measured, the faster one counts.
FedJAX fills a client's last batch with samples drawn again, so it trains on a few per cent more samples.
"""

from __future__ import annotations

from importlib.metadata import version

import fedjax
import haiku as hk
import jax
import numpy as np
import optax
from common import DECAY, LR, MOMENTUM, task
from fedjax.algorithms import fed_avg


def network(work: str):
    if work == "c":
        return hk.Sequential([hk.Linear(10)])
    if work == "a":
        return hk.Sequential([hk.Linear(200), jax.nn.relu, hk.Linear(100), jax.nn.relu, hk.Linear(10)])
    return hk.Sequential([
        hk.Conv2D(32, 5, padding="SAME"), jax.nn.relu, hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        hk.Conv2D(64, 5, padding="SAME"), jax.nn.relu, hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        hk.Flatten(), hk.Linear(512), jax.nn.relu, hk.Linear(10),
    ])  # fmt: skip


def main() -> None:
    work = task()
    fedjax.set_for_each_client_backend(work.variant)
    shape = (-1, 28, 28, 1) if work.work == "b" else (-1, 784)
    rows = np.asarray(work.x).reshape(shape)
    clients = [fedjax.ClientDataset({"x": rows[part], "y": work.y[part].astype(np.int32)}) for part in work.parts]
    forward = hk.transform(lambda batch: network(work.work)(batch["x"]))
    model = fedjax.create_model_from_haiku(
        forward, {"x": rows[:1], "y": np.zeros(1, np.int32)},
        lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )  # fmt: skip
    local = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(LR, momentum=MOMENTUM))
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model), fedjax.optimizers.create_optimizer_from_optax(local), fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1),
    )  # fmt: skip
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    versions = {name: version(name) for name in ("fedjax", "jax", "jaxlib", "dm-haiku", "numpy")}
    for number, cohort in enumerate(work.cohorts):
        keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
        work.gate(f"{work.variant}, {jax.local_device_count()} devices", **versions)
        state, _ = algorithm.apply(state, [(int(k), clients[k], key) for k, key in zip(cohort, keys)])
        jax.block_until_ready(state.params)
    work.gate()


main()
