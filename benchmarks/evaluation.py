"""Speed of evaluation on the workers, relative to one thread: L1 and L2 models of 20 clients on 10,000 test images.

    UNDRIFT_DATA=FOLDER python benchmarks/evaluation.py [--pairs 5]

Both do the same work (40 models, 400,000 forward passes of `lenet5`, all metrics on the own slice and on the whole test
set) in alternating pairs, and must compute the same numbers. Prints one line per pair and the median ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from undrift.contract.client_data import CHUNK
from undrift.core.determinism import one_thread
from undrift.engine.processes import Processes
from undrift.engine.spawn import cores, start_workers
from undrift.evaluate.stages import named
from undrift.experiment.options import from_keywords
from undrift.experiment.result import Result
from undrift.experiment.setup import prepare
from undrift.federation.dealing import federate
from undrift.store.run_store import RunStore

OPTIONS = {"method": "fliu", "model": "lenet5", "cohort": 1.0, "epochs": 1, "rounds": 1, "lr": 0.01, "evaluate_clients": "all",
           "evaluate_every": 10**6, "out": False}  # fmt: skip


def bare(runtime: Any, models: list[tuple[int, str, torch.Tensor]]) -> list[Any]:
    """The plain loop: every model on every chunk, one after another."""
    model, federation, rows = runtime.spare(0), runtime.federation, []
    model.module.eval()
    for client, stage, vector in models:
        model.load(vector)
        with torch.no_grad():
            logits = torch.cat([model(runtime.network_input(x)) for x in federation.test_x.split(CHUNK)])
        place, y = federation.slice(client)
        found = {"global": runtime.measure(logits, federation.test_y), "own": runtime.measure(logits[place], y)}
        rows += named(0, client, stage, found)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--data", default="fashion-mnist")
    given = parser.parse_args()
    federation = federate(given.data, 'pathological(2, form="fliu")', 20)
    setup = prepare(from_keywords({**OPTIONS, **({} if given.data != "digits" else {"model": "mlp"})}), federation)
    store = RunStore(None)
    engine = Processes(start_workers(cores())).open(setup.runtime, store.states)
    try:
        with one_thread():
            loop = setup.loop(engine, store)
            server_state = loop.begin()
            engine.ready()
            server_state = loop.one_round(server_state).state
            clients = range(federation.clients)
            result = Result(setup, store, server_state)
            models = [(client, "L1", vector) for client in clients for _, vector in result.held(client)]
            models += [(client, "L2", store.states.get("state", client, server_state.versions["state", client])["held"])
                     for client in clients]  # fmt: skip
            ratios = []
            for pair in range(given.pairs + 1):
                began = time.perf_counter()
                ours = loop.evaluator.after_receiving(server_state, 0, clients, loop.open_round)
                ours += loop.evaluator.after_training(server_state, 0, clients, [])
                middle = time.perf_counter()
                alone = bare(setup.runtime, models)
                end = time.perf_counter()
                assert sorted(ours) == sorted(alone), "the numbers differ"
                if pair:  # the first one warms up
                    ratios.append((end - middle) / (middle - began))
                    images = 40 * len(federation.test_y)
                    print(f"{engine.count} workers {images / (middle - began):,.0f} images/s, one thread "
                          f"{images / (end - middle):,.0f} images/s: {ratios[-1]:.2f}x, same numbers", flush=True)  # fmt: skip
            print(f"median {statistics.median(ratios):.2f}x")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
