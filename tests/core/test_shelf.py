"""The server's rows per client: versions that nobody needs go, and memory does not grow with clients or rounds."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from undrift.bench.measure import NoEvaluation
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.store.run_store import RunStore
from undrift.testing import run_parts, tiny


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("text", ["fedcda(warmup=1)", "fedfomo(M=2)"])
def test_versions_that_no_checkpoint_needs_are_dropped(text, folder, tmp_path):
    """Of a row that changes every round: what the last two checkpoints name, and the newest."""
    run = run_parts(text, tiny(), rounds=9, folder=tmp_path / "run" if folder else None)
    kept = [versions for (kind, _), versions in run.store.states._versions.items() if kind.startswith("shelf/")]
    assert len(kept) == 4
    assert all(len(versions) <= 3 for versions in kept)
    if folder:
        assert len(list((tmp_path / "run" / "states").iterdir())) <= 4  # segments of old versions are gone too
    run.store.close()


def resident() -> float:
    """MB of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("text", ["fedcda(warmup=2)", "fedfomo"])
def test_a_thousand_clients_models_on_the_shelf_leave_the_servers_memory_flat(text, tmp_path):
    """lenet5 is 0.25 MB. Twenty rounds of twenty clients put 99 MB (fedfomo) or more (fedcda, up to three models a client)
    on the shelf; the store may hold 16 MB of it."""
    clients, cohort, rounds = 1000, 20, 30
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.standard_normal((2 * clients, 28, 28, 1), dtype=np.float32))
    y = torch.arange(2 * clients) % 10
    parts = np.split(np.arange(2 * clients), clients)
    federation = Federation("fashion-mnist", (x, y), (x[:20], y[:20]), parts, [str(c) for c in range(10)], parts)
    options = {"method": text, "model": "lenet5", "rounds": rounds, "epochs": 1, "cohort": cohort, "out": False}
    setup = prepare(from_keywords(options), federation)
    store = RunStore(tmp_path / "run", budget=16_000_000)
    loop = setup.loop(Inline(setup.runtime, store.states), store)
    loop.evaluator = NoEvaluation()
    server_state, memory = loop.begin(), []
    while server_state.round < rounds:
        result = loop.one_round(server_state)
        found = result.metrics, result.notes, result.events
        store.record.commit_round(server_state.round, 0.0, 0.0, result.cohort, *found)
        server_state = result.state
        if store.due(server_state):
            store.checkpoint(server_state)
        memory += [resident()] if server_state.round % 5 == 0 else []
    seen = len({client for kind, client in server_state.versions if kind.startswith("shelf/")})
    store.close()
    assert seen > 400
    assert max(memory[2:]) - max(memory[:2]) < 25, memory
