"""Evaluation on the workers against a single-thread loop: what 20 clients hold at L1 and at L2, on 10,000 test images.

    UNDRIFT_DATA=FOLDER python benchmarks/evaluation.py [--pairs 5]

Both do the same work (40 models, 400,000 forward passes of `lenet5`, all metrics on the own slice and on the whole test
set) in alternating pairs, and must find the same numbers. Prints one line per pair and the median ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from undrift.bits import one_thread
from undrift.engine.processes import Processes
from undrift.engine.spawn import cores, start_workers
from undrift.evaluate.stages import named
from undrift.federation import federate
from undrift.job import CHUNK
from undrift.loop import Loop
from undrift.options import from_keywords
from undrift.result import Result
from undrift.setup import prepare
from undrift.store.vault import Vault

OPTIONS = {"method": "fliu", "model": "lenet5", "cohort": 1.0, "epochs": 1, "rounds": 1, "lr": 0.01, "evaluate_clients": "all",
           "evaluate_every": 10**6, "out": False}  # fmt: skip


def bare(site: Any, held: list[tuple[int, str, torch.Tensor]]) -> list[Any]:
    """The loop one would write: every model, every chunk, one after the other."""
    model, federation, rows = site.spare(0), site.federation, []
    model.module.eval()
    for client, stage, vector in held:
        model.load(vector)
        with torch.no_grad():
            logits = torch.cat([model(site.network(x)) for x in federation.test_x.split(CHUNK)])
        place, y = federation.slice(client)
        found = {"global": site.measure(logits, federation.test_y), "own": site.measure(logits[place], y)}
        rows += named(0, client, stage, found)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--data", default="fashion-mnist")
    given = parser.parse_args()
    federation = federate(given.data, 'pathological(2, form="fliu")', 20)
    setup = prepare(from_keywords({**OPTIONS, **({} if given.data != "digits" else {"model": "mlp"})}), federation)
    vault = Vault(None)
    engine = Processes(start_workers(cores())).open(setup.site, vault.states)
    try:
        with one_thread():
            loop = Loop(setup, engine, vault)
            world = loop.begin()
            engine.ready()
            world = loop.one_round(world)[0]
            everybody = range(federation.clients)
            result = Result(setup, vault, world)
            held = [(client, "L1", vector) for client in everybody for _, vector in result.held(client)]
            held += [(client, "L2", vault.states.get("state", client, world.versions["state", client])["held"])
                     for client in everybody]  # fmt: skip
            ratios = []
            for pair in range(given.pairs + 1):
                began = time.perf_counter()
                ours = loop.judge.after_receiving(world, 0, everybody, loop.desktop)
                ours += loop.judge.after_training(world, 0, everybody, [])
                middle = time.perf_counter()
                alone = bare(setup.site, held)
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
