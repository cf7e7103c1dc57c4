"""The guide's commands, run as they are printed (ports apart, which may be in use here)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undrift as ud

pytestmark = pytest.mark.flower
GUIDE = Path(__file__).parents[2] / "docs" / "deploy.md"
INSTALLED = "pip install"  # that has happened before the tests


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_commands_of_the_guide_run_as_printed(loopback, tmp_path):
    text = "\n".join(blocks())
    ports = {port: str(loopback.free_port()) for port in sorted(set(re.findall(r"--port (\d+)", text)))}
    env = {name: value for name, value in loopback.env.items() if name not in ("FLWR_HOME", "FLWR_TELEMETRY_ENABLED")}
    env["SUPERLINK"] = f"127.0.0.1:{ports['9092']}"
    loopback.env = env
    where = tmp_path
    for number, block in enumerate(blocks()):
        for port, other in ports.items():
            block = block.replace(f"--port {port}", f"--port {other}")
        block = "\n".join(line for line in block.splitlines() if not line.startswith(INSTALLED))
        if "deploy check ." in block:
            block = block.replace("deploy check .", f"deploy check . --port {ports['9092']}")
        name = f"block-{number}"
        lasting = "flower-superlink" in block or "flower-supernode" in block
        loopback.start(name, "bash", "-ec", block, cwd=where, env=env)
        if lasting:
            wanted = ports["9092"] if "flower-superlink" in block else None
            loopback.until(lambda: loopback.listens(wanted) if wanted else "SuperNode ID" in loopback.log(name), block)  # noqa: B023
            continue
        loopback.until(lambda: loopback.ended(name), block, 200)  # noqa: B023
        assert loopback.processes.pop(name).returncode == 0, loopback.log(name)
        if "cd clinics" in block:
            where = tmp_path / "clinics"
    said = loopback.log(f"block-{len(blocks()) - 1}")
    assert "finished after round 2" in said
    assert re.search(r"oslo +2 +1 ", said), said
    assert "Sequential" in said or "Linear" in said
    assert ud.load(tmp_path / "first").summary["rounds"] == 2
    for site in ("berlin", "oslo", "turin"):
        (site_store,) = (tmp_path / site / "undrift").iterdir()
        assert (site_store / "personal.safetensors").exists()
