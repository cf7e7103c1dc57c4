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
    superlink, door = str(loopback.port), loopback.free_port()
    env = {name: value for name, value in loopback.env.items() if name not in ("FLWR_HOME", "FLWR_TELEMETRY_ENABLED")}
    loopback.env = env
    folder = tmp_path
    for number, block in enumerate(blocks()):
        block = "\n".join(line for line in block.splitlines() if not line.startswith(INSTALL))
        block = block.replace("--port 9092", f"--port {superlink}")
        block = block.replace("deploy check .", f"deploy check . --port {superlink}")
        places = f"--address 127.0.0.1:{door} --superlink 127.0.0.1:{superlink}"
        block = block.replace("deploy init clinics", f"deploy init clinics {places}")
        name = f"block-{number}"
        loopback.start(name, "bash", "-ec", block, cwd=folder, env=env)
        listening = superlink if "flower-superlink" in block else str(door) if block.startswith("nginx") else None
        if listening is not None:
            loopback.until(lambda: loopback.listens(listening), block)  # noqa: B023
            continue
        if "deploy node" in block:
            loopback.until(lambda: "SuperNode ID" in loopback.log(name), block)  # noqa: B023
            continue
        loopback.until(lambda: loopback.ended(name), block, 200)  # noqa: B023
        assert loopback.processes.pop(name).returncode == 0, loopback.log(name)
        if "cd clinics" in block:
            folder = tmp_path / "clinics"
    output = loopback.log(f"block-{len(blocks()) - 1}")
    assert "finished: 2 of 2 rounds done" in output
    assert re.search(r"oslo +2 +1 ", output), output
    assert "Sequential" in output or "Linear" in output
    assert ud.load(tmp_path / "first").summary["rounds"] == 2
    for site in ("berlin", "oslo", "turin"):
        (site_folder,) = (tmp_path / site / "undrift").iterdir()
        assert (site_folder / "personal.safetensors").exists()
