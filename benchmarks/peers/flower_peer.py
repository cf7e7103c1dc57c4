"""The works on Flower's simulation: its FedAvg, a ClientApp, Ray's actors.

Its best configuration found: one actor per core (`num_cpus` 1), one thread an actor, data, network and optimizer kept
in the actor between messages, fused SGD, channels-last pictures, no evaluation, telemetry off. A message carries the
client's number, so that everybody trains the same cohorts. Variant `clients` has a supernode for every client,
`cohort` only as many as a round needs (the runtime polls all of them); both are measured, the faster one counts.
"""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import torch
from common import CLIENTS, COHORT, DECAY, LR, MOMENTUM, open_task, task, torch_network, torch_rows
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional as F

client_app = ClientApp()


@lru_cache(maxsize=1)
def kept(work: str, data: str):
    torch.set_num_threads(1)
    held = open_task(Path(data), work)
    network = torch_network(work)
    rule = torch.optim.SGD(network.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY, fused=True)
    return held, network, rule


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    held, network, rule = kept(config["work"], config["data"])
    part = held.parts[config["client"]]
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rule.state.clear()
    order = torch.randperm(len(part)).numpy()
    x, y = torch_rows(held.x[part[order]], held.work), torch.from_numpy(held.y[part[order]])
    for batch, target in zip(x.split(held.batch), y.split(held.batch)):
        F.cross_entropy(network(batch), target).backward()
        rule.step()
        rule.zero_grad()
    content = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(part)})}
    return Message(content=RecordDict(content), reply_to=message)


class Cohorts(FedAvg):
    """FedAvg on given cohorts."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid):
        while len(nodes := list(grid.get_node_ids())) < len(self.work.cohorts[0]):
            time.sleep(0.1)
        self.work.gate(self.note, **self.versions)
        for node, client in zip(nodes, self.work.cohorts[server_round - 1]):
            told = ConfigRecord({**config, "client": int(client)})
            yield Message(RecordDict({"arrays": arrays, "config": told}), node, MessageType.TRAIN)


def main() -> None:
    work = task()
    strategy = Cohorts(fraction_evaluate=0.0)
    cores = len(os.sched_getaffinity(0))
    nodes = COHORT[work.work] if work.variant == "cohort" else CLIENTS[work.work]
    strategy.work, strategy.note = work, f"{nodes} supernodes, {cores} actors"
    strategy.versions = {"flwr": version("flwr"), "ray": version("ray"), "torch": torch.__version__}
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.manual_seed(0)
        strategy.start(
            grid, ArrayRecord(torch_network(work.work).state_dict()), num_rounds=work.rounds,
            train_config=ConfigRecord({"work": work.work, "data": sys.argv[sys.argv.index("--data") + 1]}),
        )  # fmt: skip
        work.gate()

    run_simulation(
        server_app, client_app, nodes,
        backend_config={"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip


if __name__ == "__main__":
    import flower_peer  # by its name, so that actors import it once instead of unpickling a copy with every message

    flower_peer.main()
