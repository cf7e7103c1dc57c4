"""The works on pfl (apple/pfl-research), started by `torchrun --nproc-per-node 2`.

Its best configuration found: every user's tensors made once and kept (so its batches are cached and in the same order
in every round: no gather, no shuffle), users balanced over the processes by their size, one thread a process, fused
SGD, channels-last pictures, no evaluation, no metrics to the platform.
"""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
from common import COHORT, DECAY, LR, MOMENTUM, Task, task, torch_network, torch_rows
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F


class Classifier(torch.nn.Module):
    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(F.cross_entropy(self.network(x), y, reduction="sum").item(), len(y))}


class Gate(TrainingProcessCallback):
    """Every process passes it, so that none runs ahead."""

    def __init__(self, work: Task) -> None:
        self.work = work

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.work.gate()
        return False, Metrics()


def main() -> None:
    torch.set_num_threads(1)
    work = task()
    torch.manual_seed(0)
    np.random.seed(0)
    users = {
        k: PyTorchTensorDataset((torch_rows(work.x[part], work.work), torch.from_numpy(work.y[part])), user_id=str(k))
        for k, part in enumerate(work.parts)
    }
    # The sampler goes through the cohorts in order; 0.6's own process asks it for users ahead of time.
    dataset = FederatedDataset(
        users.__getitem__, MinimizeReuseUserSampler(work.cohorts.ravel().tolist()),
        user_id_to_weight={k: len(part) for k, part in enumerate(work.parts)},
    )  # fmt: skip
    model = Classifier(torch_network(work.work))
    pfl_model = PyTorchModel(
        model,
        lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=MOMENTUM, weight_decay=DECAY, fused=True),
        torch.optim.SGD(model.parameters(), 1.0),
    )
    processes = get_default_framework_module().distributed.world_size
    work.gate(f"torchrun, {processes} processes", pfl=version("pfl"), torch=torch.__version__)
    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=work.rounds, evaluation_frequency=10**9,
                          train_cohort_size=COHORT[work.work], val_cohort_size=0),
        SimulatedBackend(training_data=dataset, val_data=dataset, postprocessors=[WeightByDatapoints()]),
        pfl_model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=work.batch),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Gate(work)], send_metrics_to_platform=False,
    )  # fmt: skip


main()
