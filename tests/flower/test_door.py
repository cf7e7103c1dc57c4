"""Sites reach Flower's Fleet API through the proxy that `deploy init` configures, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import undrift as ud
from undrift.cli import command
from undrift.deploy import app_hash
from undrift.methods.upload.accountant import Mechanism, epsilon

pytestmark = pytest.mark.flower
SITES = ("berlin", "oslo")


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # Flower's own
def test_an_app_that_was_run_does_not_hold_itself(loopback):
    """Flower unpacks apps into $FLWR_HOME/apps, and environment.sh puts FLWR_HOME into the app's folder."""
    app = loopback.make("fedavg", sites=SITES, rounds=1).app
    before = app_hash.of(app)
    shutil.copytree(app, loopback.folder / "unpacked")
    shutil.copytree(loopback.folder / "unpacked", app / "flower" / "apps" / "undrift.app.1.0.0.12345678")
    assert app_hash.of(app) == before


def test_from_the_sites_side_nobody_runs_or_registers_and_sites_still_train(loopback, tmp_path, capfd):
    """An outsider has what a site has: the CA's certificate and the address where sites connect."""
    loopback.make("fedavg", sites=SITES, rounds=1, upload="dp(noise=1.0, clip=0.5)").superlink()
    loopback.register(*SITES)
    homes = {site: tmp_path / f"{site}-flower" for site in SITES}
    for site in SITES:
        env = {**loopback.env, "FLWR_HOME": str(homes[site])}
        data, key = loopback.folder / site / "data.py", loopback.app / "keys" / site
        loopback.start(
            site, "undrift", "deploy", "node", site, "--data", str(data), "--key", str(key),
            "--address", loopback.address, "--ca", str(loopback.app / "keys" / "ca.crt"), env=env,
        )  # fmt: skip
    loopback.run()

    # 1. Neither a run nor a registration from there, while the operator's own run goes on.
    outsider = tmp_path / "outsider"
    loopback.configure(outsider, loopback.address)
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(outsider / "key")], check=True)
    program, env = str(Path(sys.executable).with_name("flwr")), {**loopback.env, "FLWR_HOME": str(outsider)}
    attempts = {
        "start-run": [program, "run", str(loopback.app), "undrift", "-c", f'out="{tmp_path / "stolen"}"'],
        "register-node": [program, "supernode", "register", str(outsider / "key.pub"), "undrift", "--name", "berlin"],
    }
    started = {
        call: subprocess.Popen(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for call, args in attempts.items()
    }
    for call, process in started.items():
        output, _ = process.communicate(timeout=120)
        assert process.returncode != 0, output
        assert "403" in output, output
        assert call in output.replace("\n", ""), output

    # 2. `deploy check` says the same, and says it when Control answers where it should not.
    capfd.readouterr()
    assert command(["deploy", "check", str(loopback.app), "--address", loopback.address, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["Fleet"], report["Control"], report["Runtime"]) == ("answers", "closed", "closed")
    assert command(["deploy", "check", str(loopback.app), "--address", f"127.0.0.1:{loopback.port}"]) == 2
    assert f"Control answers at 127.0.0.1:{loopback.port}, where sites connect" in capfd.readouterr().err

    # 3. The sites train through the proxy, and print the SHA-256 of what they were sent.
    loopback.until_finished()
    summary = ud.load(loopback.folder / "run").summary
    assert summary["rounds"] == 1
    assert summary["privacy"]["seeded"] is False  # the noise comes from the operating system
    assert summary["privacy"]["epsilon"] == pytest.approx(epsilon(Mechanism(1.0, "all", 2, 2), 1e-5, 1), rel=1e-3)
    assert not (tmp_path / "stolen").exists()
    assert all(detail.split()[1] == "joined" for _, _, _, detail in loopback.events()), loopback.events()
    digests = []
    for home, args in ((homes["oslo"], []), (loopback.flower_home, [str(loopback.app)])):
        done = subprocess.run(
            [str(Path(sys.executable).with_name("undrift")), "deploy", "app-hash", *args, "--json"],
            env={**loopback.env, "FLWR_HOME": str(home)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        (found,) = json.loads(done.stdout)
        assert found["remark"] == ""
        digests.append(found["sha256"])
    assert digests[0] == digests[1]

    # 4. A SuperNode that is killed takes its processes along.
    (supernode,) = loopback.processes_of("oslo", "flower-supernode")
    family = loopback.family("oslo")
    assert len(family) >= 3, family  # this command, the SuperNode, what it started
    os.kill(supernode, signal.SIGKILL)
    loopback.until(lambda: loopback.ended("oslo"), "the end of oslo's node", 20)
    assert loopback.processes.pop("oslo").returncode == 128 + signal.SIGKILL
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
