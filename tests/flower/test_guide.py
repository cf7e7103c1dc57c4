"""Runs the commands of docs/deploy.md as printed, except for the ports, which may be in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undrift as ud

pytestmark = pytest.mark.flower
GUIDE = Path(__file__).parents[2] / "docs" / "deploy.md"
INSTALL = "pip install"  # already done before the tests


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_commands_of_the_guide_run_as_printed(loopback, tmp_path):
    text = "\n".join(blocks())
    ports = {port: str(loopback.free_port()) for port in sorted(set(re.findall(r"--port (\d+)", text)))}
    env = {name: value for name, value in loopback.env.items() if name not in ("FLWR_HOME", "FLWR_TELEMETRY_ENABLED")}
    env["SUPERLINK"] = f"127.0.0.1:{ports['9092']}"
    loopback.env = env
    folder = tmp_path
    for number, block in enumerate(blocks()):
        for port, other in ports.items():
            block = block.replace(f"--port {port}", f"--port {other}")
        block = "\n".join(line for line in block.splitlines() if not line.startswith(INSTALL))
        if "deploy check ." in block:
            block = block.replace("deploy check .", f"deploy check . --port {ports['9092']}")
        name = f"block-{number}"
        keeps_running = "flower-superlink" in block or "flower-supernode" in block
        loopback.start(name, "bash", "-ec", block, cwd=folder, env=env)
        if keeps_running:
            wanted = ports["9092"] if "flower-superlink" in block else None
            loopback.until(lambda: loopback.listens(wanted) if wanted else "SuperNode ID" in loopback.log(name), block)  # noqa: B023
            continue
        loopback.until(lambda: loopback.ended(name), block, 200)  # noqa: B023
        assert loopback.processes.pop(name).returncode == 0, loopback.log(name)
        if "cd clinics" in block:
            folder = tmp_path / "clinics"
    output = loopback.log(f"block-{len(blocks()) - 1}")
    assert "finished after round 2" in output
    assert re.search(r"oslo +2 +1 ", output), output
    assert "Sequential" in output or "Linear" in output
    assert ud.load(tmp_path / "first").summary["rounds"] == 2
    for site in ("berlin", "oslo", "turin"):
        (site_folder,) = (tmp_path / site / "undrift").iterdir()
        assert (site_folder / "personal.safetensors").exists()
