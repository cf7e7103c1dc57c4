"""`undrift deploy init | check | status`, as a user types them."""

from __future__ import annotations

import hashlib
import json
import socket
import tomllib
from pathlib import Path

import numpy as np
import pytest

from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.deploy import check


@pytest.fixture
def undrift(tmp_path, monkeypatch, capfd):
    """Run a command in an empty folder, as if Flower were installed: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("undrift.cli.deploy.require_flower", lambda: None)
    monkeypatch.setattr("undrift.deploy.app_hash.bundle", lambda folder: (folder / "run.toml").read_bytes())

    def run(*args):
        capfd.readouterr()
        code = command([str(arg) for arg in args])
        return code, *capfd.readouterr()

    return run


OPTIONS = ("--method", "scaffold+fliu", "--data", "digits", "--sites", "berlin,oslo", "--rounds", "3")
INIT = ("deploy", "init", "app", *OPTIONS)


def site(folder: Path, n: int = 40, text: str | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / "data.npz", x=np.random.default_rng(0).normal(size=(n, 8, 8)).astype("float32"), y=np.arange(n) % 10
    )
    (folder / "data.py").write_text(text or (folder.parent / "app" / "site" / "data.py").read_text())
    return folder / "data.py"


def test_init_writes_an_app_whose_code_only_imports_undrift(undrift, tmp_path):
    code, out, err = undrift(*INIT, "--evaluate-only", "geneva", "--quorum", "2", "--deadline", "90")
    assert code == 0, err
    assert "a site sends in every round: the model (7,510 numbers); scaffold's change" in out
    for name in ("server", "client"):
        assert (tmp_path / "app" / "undrift_app" / f"{name}.py").read_text().count("\n") == 3
    table = tomllib.loads((tmp_path / "app" / "run.toml").read_text())
    assert table["deploy"]["sites"] == ["berlin", "oslo"]
    assert table["deploy"]["evaluate_only"] == ["geneva"]
    assert table["deploy"]["quorum"] == 2
    assert table["deploy"]["deadline"] == 90.0
    assert table["selection"] == "all"
    assert any(part.startswith("objective.scaffold") for part in table["parts"])
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert set(app) == {"publisher", "fab-include", "components", "config"}
    readme = (tmp_path / "app" / "README.md").read_text()
    for text in ("--enable-supernode-auth", "--ssl-certfile", "flwr supernode register", "runs the operator's code"):
        assert text in readme
    assert "FLWR_TELEMETRY_ENABLED=0" in (tmp_path / "app" / "environment.sh").read_text()


def test_init_copies_a_runs_settings_and_the_users_own_model(undrift, tmp_path):
    (tmp_path / "nets.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))\n"
    )
    code, _, err = undrift("run", "--method", "fedprox(mu=0.3)", "--rounds", "2", "--clients", "3", "--lr", "0.02",
                           "--model", "nets:net", "--out", "chosen", "--quiet")  # fmt: skip
    assert code == 0, err
    code, _, err = undrift("deploy", "init", "app", "--run", "chosen", "--sites", "a,b")
    assert code == 0, err
    table = tomllib.loads((tmp_path / "app" / "run.toml").read_text())
    assert table["lr"] == 0.02
    assert table["parts"][0].startswith("objective.fedprox(mu=0.3")
    assert (tmp_path / "app" / "nets.py").exists()
    assert "nets.py" in (tmp_path / "app" / "pyproject.toml").read_text()


@pytest.mark.parametrize(("args", "sentence"), [
    (("--sites", ","), "at least one site"),
    (("--sites", "a,b,a"), "the site a is listed twice"),
    (("--sites", "a b"), "a site's name must be"),
    (("--sites", "a(" * 1000), "a(a(a(…"),
    (("--sites", "a,b", "--quorum", "3"), "quorum is 3; it must lie between 1 and the 2 sites"),
    (("--sites", "a,b", "--quorum", "1.5"), "--quorum must be a number above 0"),
    (("--sites", "a,b", "--deadline", "0"), "deadline must be a number above 0"),
    (("--sites", "a,b", "--deadline", "soon"), "--deadline must be a number"),
    (("--sites", "a,b", "--shape", "big"), "--shape must be the shape of one sample"),
    (("--sites", "a,b", "--labels", "one"), "at least two labels"),
    (("--sites", "a,b", "--noise", "symmetric(0.2)"), "--noise is an option of simulations only"),
    (("--sites", "a,b", "--method", "fedfomo"), "shows sites each other's models"),
    (("--sites", "a,b", "--method", "scafold"), "did you mean scaffold"),
    (("--sites", "a,b", "--run", "nowhere"), "nowhere is not a run"),
])  # fmt: skip
def test_init_refuses_with_one_sentence(args, sentence, undrift, tmp_path):
    code, _, err = undrift("deploy", "init", "app", "--data", "digits", *args)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "app").exists()


def test_a_folder_that_is_no_app_is_named(undrift):
    code, _, err = undrift("deploy", "check", ".", "--port", "9092")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "the folder '.' has no run.toml; give an app's folder" in err


def test_init_needs_shape_and_labels_and_a_new_folder(undrift, tmp_path):
    assert "--shape 1,28,28 --labels" in undrift("deploy", "init", "app", "--sites", "a,b")[2]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine").touch()
    code, _, err = undrift(*INIT)
    assert code == 2
    assert "app exists already" in err


def test_sites_may_agree_to_see_each_others_models(undrift):
    code, _, err = undrift(*INIT[:3], "--method", "fedfomo", "--data", "digits", "--sites", "a,b", "--show-models")
    assert code == 0, err


def test_without_flower_the_error_says_how_to_install_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command([*INIT]) == 2
    assert "pip install 'undrift[flower]'" in capfd.readouterr().err


def test_check_reports_what_a_round_takes_and_what_would_leave(undrift, tmp_path):
    undrift(*INIT)
    code, out, err = undrift("deploy", "check", "app", "--site", "oslo", "--data", site(tmp_path / "oslo"), "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["site"] == "oslo, number 1 of 2"
    assert report["samples"] == "32 training and 8 test samples, each (1, 8, 8)"
    assert "train.vector 30,040, train.objective.scaffold.change 30,040" in report["leaves"]
    assert report["ready"] == "yes; nothing was sent"
    assert not (tmp_path / "oslo" / "undrift").exists()


LOADS = "def load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4) % 2 + "


@pytest.mark.parametrize(("text", "sentence"), [
    ("x = 1", "oslo's data.py has no function load()"),
    ("1 / 0", "oslo's data.py raised ZeroDivisionError"),
    (f"LABELS = ['cat', 'dog']\n{LOADS}0", "oslo's labels are cat, dog"),
    (f"LABELS = [str(c) for c in range(10)]\n{LOADS}9", "labels must lie in 0…9"),
])  # fmt: skip
def test_check_refuses_a_data_py_that_does_not_fit(text, sentence, undrift, tmp_path):
    undrift(*INIT)
    code, _, err = undrift("deploy", "check", "app", "--site", "oslo", "--data", site(tmp_path / "oslo", text=text))
    assert code == 2
    assert sentence in err.strip().splitlines()[-1]


def test_check_refuses_an_unlisted_site_a_missing_file_and_a_folder_that_is_not_an_app(undrift, tmp_path):
    undrift(*INIT)
    assert (
        "'rome' is not in this deployment's list"
        in undrift("deploy", "check", "app", "--site", "rome", "--data", site(tmp_path / "oslo"))[2]
    )
    assert "there is no file" in undrift("deploy", "check", "app", "--site", "oslo", "--data", "nowhere.py")[2]
    assert "there is no file" in undrift("deploy", "check", "missing", "--site", "oslo", "--data", "data.py")[2]


def test_check_at_the_server_needs_keys_and_a_free_port(undrift, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "undrift.deploy.check.proxy_state", lambda app: ""
    )  # nginx reads the keys, which are empty here
    undrift(*INIT)
    assert "make_keys.py" in undrift("deploy", "check", "app")[2]
    (tmp_path / "app" / "keys").mkdir()
    for name in ("ca.crt", "server.crt", "server.key", "berlin.pub", "oslo.pub"):
        (tmp_path / "app" / "keys" / name).touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = undrift("deploy", "check", "app", "--port", port)
        assert code == 2
        assert f"port {port} is in use" in err
    assert undrift("deploy", "check", "app", "--port", port)[0] == 0


def test_check_looks_at_the_port_that_init_was_given(undrift, tmp_path, monkeypatch):
    monkeypatch.setattr("undrift.deploy.check.proxy_state", lambda app: "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        undrift(*INIT, "--superlink", f"127.0.0.1:{port}")
        (tmp_path / "app" / "keys").mkdir()
        for name in ("ca.crt", "server.crt", "server.key", "berlin.pub", "oslo.pub"):
            (tmp_path / "app" / "keys" / name).touch()
        assert f"port {port} is in use" in undrift("deploy", "check", "app")[2]
        monkeypatch.setenv("SUPERLINK", "127.0.0.1:1")  # as in a shell that sourced an edited environment.sh
        assert "1 is free" in undrift("deploy", "check", "app")[1]
        monkeypatch.delenv("SUPERLINK")
    assert f"{port} is free" in undrift("deploy", "check", "app")[1]


def test_init_closes_the_port_and_publishes_the_apps_hash(undrift, tmp_path):
    code, out, err = undrift(*INIT, "--address", "127.0.0.2:9555", "--superlink", "127.0.0.1:9556")
    assert code == 0, err
    app = tmp_path / "app"
    digest = hashlib.sha256((app / "run.toml").read_bytes()).hexdigest()
    assert f"the app's SHA-256, for the sites: {digest}" in out
    assert (app / "app.sha256").read_text() == f"{digest}\n"
    nginx = (app / "proxy" / "nginx.conf").read_text()
    assert "listen 127.0.0.2:9555 ssl;" in nginx
    assert "proxy_pass https://127.0.0.1:9556/v1/fleet/;" in nginx
    readme = (app / "README.md").read_text()
    assert "flower-superlink --host 127.0.0.1 --port 9556" in readme
    assert "$" not in nginx.replace("$$", "")
    environment = (app / "environment.sh").read_text()
    assert ': "${FLEET:=127.0.0.2:9555}"' in environment
    assert undrift("deploy", "app-hash", "app")[1].split() == [digest, "app"]


def test_check_says_when_the_app_is_not_the_published_one(undrift, tmp_path, monkeypatch):
    monkeypatch.setattr("undrift.deploy.check.proxy_state", lambda app: "")
    undrift(*INIT)
    (tmp_path / "app" / "keys").mkdir()
    for name in ("ca.crt", "server.crt", "server.key", "berlin.pub", "oslo.pub"):
        (tmp_path / "app" / "keys" / name).touch()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    before = json.loads(undrift("deploy", "check", "app", "--port", port, "--json")[1])
    text = (tmp_path / "app" / "run.toml").read_text()
    (tmp_path / "app" / "run.toml").write_text(f"{text}# changed\n")
    after = json.loads(undrift("deploy", "check", "app", "--port", port, "--json")[1])
    assert "publish it" not in before["app"]
    assert "publish it to the sites" in after["app"]


def test_a_deployment_without_the_proxys_configuration_is_not_ready(undrift, tmp_path):
    undrift(*INIT)
    (tmp_path / "app" / "proxy" / "nginx.conf").unlink()
    with pytest.raises(BadRequest, match="sites would reach Control"):
        check.proxy_state(tmp_path / "app")


@pytest.mark.parametrize(("args", "sentence"), [
    (("check", "app", "--port", "x"), "--port must be a whole number between 1 and 65,535"),
    (("check", "app", "--data", "x.py"), "--site is missing"),
    (("check", "app", "--address", "x:1", "--site", "oslo"), "leave out --site"),
    (("check", "app", "--address", "127.0.0.1:1"), "nothing answers at 127.0.0.1:1"),
    (("node", "oslo", "--data", "d", "--key", "k"), "--address and --ca are missing"),
    (("init", "b", *OPTIONS, "--address", "fleet"), "an address is HOST:PORT"),
])  # fmt: skip
def test_a_wrong_call_is_refused_with_one_sentence(args, sentence, undrift):
    code, _, err = undrift("deploy", *args)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_status_reports_every_site(undrift, deploy):
    deployment = deploy(evaluate_only=("geneva",), rounds=2, evaluate_every=1)
    deployment.transport.online.discard(99)
    deployment.serve()
    code, out, err = undrift("deploy", "status", deployment.run, "--json")
    assert code == 0, err
    report = json.loads(out)
    assert [site["rounds_answered"] for site in report["sites"]] == [2, 0, 2, 0]
    assert report["sites"][1]["last_trouble"] == "absent in round 1"
    assert report["sites"][0]["accuracy"]["L1"] == deployment.metrics("L1")[1, 0]
    page = undrift("deploy", "status", deployment.run)[1]
    assert "geneva (evaluates)" in page
    assert "oslo did not complete the handshake" in page
    assert "not a run" in undrift("deploy", "status", "nowhere")[2]


def test_the_servers_folder_is_a_run_like_any_other(undrift, deploy):
    deployment = deploy(rounds=2)
    result = deployment.serve()
    code, out, err = undrift("show", deployment.run, "--json")
    assert code == 0, err
    assert json.loads(out)["model_sha256"] == result.summary["model_sha256"]
    assert undrift("show", deployment.run)[0] == 0
    import undrift as ud

    with pytest.raises(Exception, match="at the sites"):
        ud.load(deployment.run).personal(0)
    assert "the flower engine runs at real sites" in undrift("run", "--engine", "flower", "--rounds", "1")[2]
