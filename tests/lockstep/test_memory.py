"""Memory of a large cohort: what it sends, and one stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENTS, STACK = 1000, 50_000_000
SLACK = 60 << 20  # of the allocator and of what is imported late
SCRIPT = """
import resource, sys
import numpy as np, torch
import undrift as ud
from undrift.federation.federation import Federation

clients, stack = int(sys.argv[1]), sys.argv[2]
x, y = torch.randn(8 * clients, 64), torch.arange(8 * clients) % 10
shards = np.split(np.arange(8 * clients), clients)
federation = Federation("made up", (x, y), (x[:200], y[:200]), shards, list("0123456789"), [np.arange(10)] * clients)
settings = dict(model="mlp(2373)", rounds=1, epochs=1, batch=8, out=False, engine="inline", evaluate_every=9, evaluate_clients=1)
ud.run("fedavg", federation, **settings, cohort=2, lockstep="on")
before = int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
result = ud.run("fedavg", federation, **settings, lockstep=f"on(bytes={stack})")
print(result.setup.plan.layout.n, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_round_takes_what_the_cohort_sends_and_one_stack():
    asked = [sys.executable, "-c", SCRIPT, str(CLIENTS), str(STACK)]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    parameters, grown = map(int, said[-2:])
    assert parameters == 177_985
    assert grown <= CLIENTS * 4 * parameters + STACK + SLACK
