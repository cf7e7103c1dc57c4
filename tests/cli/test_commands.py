"""The commands as users type them, and the JSON that scripts read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import undrift as package
from undrift.bench.catalogue import describe
from undrift.cli.methods import page
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED

UNDRIFT = [sys.executable, "-c", "from undrift.cli import main; main()"]
SPREAD = {"mean", "std", "worst_decile", "best_decile"}
PAGE = {"name", "what", "paper", "parts", "parameters", "sends", "receives", "keeps_state", "about"}
HEADINGS = ("parameters:", "a client sends", "a client receives")


def in_subprocess(*arguments, **environment):
    """Run the command in a subprocess, without a terminal."""
    return subprocess.run(
        [*UNDRIFT, *arguments], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def test_without_arguments_it_prints_a_welcome_with_three_commands(undrift):
    result = undrift()
    assert result.code == 0
    assert len(re.findall(r"^  undrift ", result.out, re.MULTILINE)) == 3


def test_version_and_env(undrift):
    assert undrift("--version").out.strip() == f"undrift {package.__version__}"
    result = undrift("env")
    assert result.code == 0
    for word in ("python", "torch", "numpy", "cores", "cpu capability"):
        assert word in result.out


def test_help_lists_every_command_and_every_option(undrift):
    result = undrift("--help")
    assert result.code == 0
    for name in ("demo", "run", "compare", "data", "methods", "runs", "show", "resume", "env"):
        assert name in result.out
    options = undrift("run", "--help").out
    for name in (
        "--method",
        "--partition",
        "--lr-decay",
        "--persist-momentum",
        "--evaluate-clients",
        "--force",
        "--json",
    ):
        assert name in options


def test_methods_lists_all(undrift):
    table = undrift("methods", "--json").json
    assert [entry["name"] for entry in table] == list(PUBLISHED)
    assert all(entry["what"] and entry["paper"] for entry in table)
    listed = undrift("methods").out
    assert all(name in listed for name in PUBLISHED)


@pytest.mark.parametrize(
    "name", ["fedavg", "flood", "fedper", "weighting.mix", "private.named"]
)  # nothing brought, two parts, private entries, parts that need a parameter
def test_methods_name_describes_one_method(undrift, name):
    result = undrift("methods", name)
    assert result.code == 0, result.err
    for word in (name, *HEADINGS):
        assert word in result.out
    found = undrift("methods", name, "--json").json
    assert set(found) >= PAGE
    assert found["what"]


def test_methods_describes_what_run_takes(undrift):
    """Parameters and compositions too, without the parts that give way."""
    joined = undrift("methods", "flood+fedprox(mu=0.1)@bound", "--json").json
    assert joined["parts"] == ["sampling.flood", "objective.fedprox", "weighting.bound"]
    assert joined["sends"] == ["spread: one number"]
    assert joined["parameters"]["fedprox.mu"] == "0.01"
    assert joined["laws"] == ["test_bound", "test_fedprox", "test_flood"]
    assert undrift("methods", "fedprox(mu=0.1)", "--json").json["what"].startswith("A pull towards")
    assert undrift("methods", "flood+scafold").code == 2


def test_every_name_and_every_part_has_a_page():
    """The page of `undrift methods NAME` for every name, made without running the command each time."""
    for name in (*PUBLISHED, *(f"{axis}.{name}" for axis, table in part_tables().items() for name in table)):
        found = describe(name)
        assert set(found) >= PAGE, name
        assert found["what"], name
        json.dumps(found)
        printed = page(found)
        assert [word for word in (name, *HEADINGS) if word not in printed] == [], name


def test_data_list_and_show(undrift):
    result = undrift("data", "list")
    assert result.code == 0
    assert "digits" in result.out
    assert any(entry["name"] == "digits" for entry in undrift("data", "list", "--json").json)
    found = undrift("data", "show", "digits", "dirichlet(0.1)", "--clients", "7", "--json").json
    assert len(found["sizes"]) == len(found["class_counts"]) == 7
    assert [sum(row) for row in found["class_counts"]] == found["sizes"]
    assert undrift("data", "show", "--html", "picture.html").code == 0
    assert "<html" in Path("picture.html").read_text()[:200].lower()


def test_json_is_one_object_with_the_promised_keys_and_nothing_else_on_stdout(undrift, small):
    result = undrift("run", *small, "--out", "run", "--json")
    found = result.json
    promised = {"run", "method", "rounds", "seconds", "accuracy", "headline", "stages", "failures", "model_sha256"}
    assert set(found) == promised
    assert (found["headline"]["name"], found["headline"]["better"]) == ("accuracy", "higher")
    assert found["headline"]["value"] == found["accuracy"]
    assert found["run"] == "run"
    assert found["method"] == "fedavg"
    assert found["rounds"] == 2
    assert 0 <= found["accuracy"] <= 1
    assert {"accuracy", "loss", "f1_macro"} <= set(found["stages"]["G"])
    for stage in ("L1", "L2"):
        evaluated = found["stages"][stage]
        assert {"acc_local", "acc_global", "acc", "rho"} <= set(evaluated)
        assert set(evaluated["acc_local"]) == set(evaluated["acc_global"]) == SPREAD
        assert set(evaluated["rho"]) == {"0.5", "0.8", "0.9", "0.95"}
        assert evaluated["acc"] == pytest.approx(evaluated["acc_local"]["mean"] + evaluated["acc_global"]["mean"])
    assert found["failures"] == []
    assert re.fullmatch(r"[0-9a-f]{64}", found["model_sha256"])
    assert "round 2/2" in result.err


def test_a_private_method_has_no_global_accuracy(undrift, small):
    found = undrift("run", *small, "--method", "fedper", "--json", "--quiet").json
    assert found["accuracy"] is None
    assert found["stages"]["G"] is None
    assert found["stages"]["L1"]["acc"] is not None
    assert "—" in undrift("show", found["run"]).out


def test_quiet_prints_nothing_and_log_has_every_round(undrift, small):
    result = undrift("run", *small, "--quiet", "--log", "log.txt")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert len(re.findall(r"^round \d/2 accuracy", Path("log.txt").read_text(), re.MULTILINE)) == 2


def test_runs_go_to_the_next_free_name(undrift, small):
    folders = [undrift("run", *small, "--json", "--quiet").json["run"] for _ in range(2)]
    assert folders == ["runs/digits-fedavg-1", "runs/digits-fedavg-2"]
    listed = undrift("runs", "--json").json
    assert [entry["run"] for entry in listed] == folders
    assert undrift("runs", "--remove", "digits-fedavg-1").code == 0
    assert [entry["run"] for entry in undrift("runs", "--json").json] == folders[1:]
    assert "digits-fedavg-2" in undrift("runs").out


def test_without_runs_it_explains_how_to_make_one(undrift):
    result = undrift("runs")
    assert result.code == 0
    assert "undrift run" in result.out


def test_the_same_seed_gives_the_same_model_and_another_seed_another(undrift, small, finished):
    again = undrift("run", *small, "--json", "--quiet").json
    other = undrift("run", *small, "--json", "--quiet", "--seed", "1").json
    same_data = undrift("run", *small, "--json", "--quiet", "--seed", "1", "--data-seed", "0").json
    assert again["model_sha256"] == finished["model_sha256"]
    assert len({found["model_sha256"] for found in (finished, other, same_data)}) == 3


def test_a_run_toml_repeats_its_run_and_options_override_it(undrift, finished):
    assert undrift("run", "first/run.toml", "--json", "--quiet").json["model_sha256"] == finished["model_sha256"]
    assert undrift("run", "first", "--json", "--quiet").json["model_sha256"] == finished["model_sha256"]
    longer = undrift("run", "first/run.toml", "--rounds", "3", "--json", "--quiet").json
    assert longer["rounds"] == 3
    other = undrift("run", "first/run.toml", "--method", "fedprox(mu=1)", "--json", "--quiet").json
    assert other["method"] == "fedprox(mu=1)"
    assert tomllib.loads(Path("first/run.toml").read_text())["cohort"] == 0.5  # the default, spelt out
    all_clients = undrift("run", "first/run.toml", "--selection", "all", "--json", "--quiet").json
    assert "cohort" not in tomllib.loads(Path(all_clients["run"], "run.toml").read_text())
    weighted = undrift("run", "first/run.toml", "--weighting", "uniform", "--json", "--quiet").json
    assert weighted["model_sha256"] != finished["model_sha256"]


def test_show_and_resume_of_a_finished_run(undrift, finished):
    shown = undrift("show", "first")
    assert shown.code == 0
    assert "2 of 2 rounds" in shown.out
    assert undrift("show", "first", "--json").json == finished
    result = undrift("resume", "first", "--json")
    assert result.code == 0
    assert "finished" in result.err
    assert result.json == finished


def test_resume_gives_a_finished_run_more_rounds(undrift, finished):
    more = undrift("resume", "first", "--rounds", "4", "--json", "--quiet").json
    assert more["rounds"] == 4
    assert more["model_sha256"] != finished["model_sha256"]
    result = undrift("resume", "first", "--rounds", "1")
    assert result.code == 2
    assert "--rounds 1" in result.sentence


def test_compare_runs_all_on_the_same_federation(undrift, small):
    result = undrift(
        "compare", "fedavg", "fedprox(mu=0.5)", "fedavg --lr 0.01", *small, "--out", "both", "--json", "--quiet"
    )
    assert result.code == 0, result.err
    rows = result.json["rows"]
    assert [row["method"] for row in rows] == ["fedavg", "fedprox(mu=0.5)", "fedavg lr=0.01"]
    assert len({row["model_sha256"] for row in rows}) == 3
    assert Path("both/index.html").exists()
    assert all(Path(row["run"]).is_dir() for row in rows)


def test_compare_gives_all_methods_a_proxy_set_if_one_needs_it(undrift, small):
    rows = undrift("compare", "fedavg", "aflama", *small, "--json", "--quiet").json["rows"]
    assert len(rows) == 2
    proxies = [tomllib.loads((Path(row["run"]) / "run.toml").read_text())["proxy"] for row in rows]
    assert proxies == [0.02, 0.02]


def test_compare_repeats_over_seeds(undrift, small):
    rows = undrift("compare", "fedavg", *small, "--seeds", "2", "--json", "--quiet").json["rows"]
    assert [row["seed"] for row in rows] == [0, 1]
    again = undrift("compare", "fedavg", *small, "--repeat", "2", "--json", "--quiet").json["rows"]
    assert rows[0]["model_sha256"] == again[0]["model_sha256"]
    assert rows[1]["model_sha256"] != again[1]["model_sha256"]


def test_a_replaced_part_is_reported_before_the_first_round(undrift, small):
    result = undrift("run", *small, "--method", "flood@uniform")
    assert "gives way" in result.err
    assert result.err.index("gives way") < result.err.index("round 2/2")


def test_a_failed_run_ends_with_exit_code_1_and_can_be_resumed(undrift, small):
    Path("mine.py").write_text(
        "import torch\n"
        "def loss(logits, y):\n"
        "    if logits.requires_grad:\n"
        "        raise ArithmeticError('my own words')\n"
        "    return torch.nn.functional.cross_entropy(logits, y, reduction='none')\n"
    )
    result = undrift("run", *small, "--loss", "mine:loss", "--out", "run", "--quiet")
    assert result.code == 1, result.err
    for word in ("client", "round 0", "my own words", "mine.py", "--tolerate"):
        assert word in result.err
    tolerated = undrift("run", *small, "--loss", "mine:loss", "--quiet", "--json", "--tolerate")
    assert tolerated.code == 1  # every client was left out: the numbers are those of the initial model
    assert "every client was left out" in tolerated.err
    assert {failure["kind"] for failure in tolerated.json["failures"]} == {"exception", "empty"}
    sys.modules.pop("mine", None)


def test_without_a_terminal_lines_are_plain(tmp_path):
    done = in_subprocess(
        "run", "--clients", "5", "--rounds", "2", "--model", "mlp(8)", "--json", "--out", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 2
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr
    assert "round 2/2" in done.stderr


def test_a_bad_request_prints_no_traceback():
    done = in_subprocess("run", "--method", "fedagv")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "fedavg" in done.stderr


def test_version_does_not_import_torch():
    code = "import sys; from undrift.cli import command; command(['--version']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


FIRST = ("run", "--data", "digits", "--partition", "dirichlet(0.1)", "--clients", 20, "--cohort", 0.5, "--seed", 0)


def test_the_first_command_of_the_manual_learns(undrift):
    assert undrift(*FIRST, "--rounds", 30, "--json", "--quiet", "--engine", "inline").json["accuracy"] > 0.8


def test_dropout_and_batchnorm_give_the_same_model_when_repeated(undrift):
    arguments = (*FIRST, "--rounds", 4, "--model", "mlp(100, norm=batch, dropout=0.2)", "--json", "--quiet")
    assert undrift(*arguments).json["model_sha256"] == undrift(*arguments).json["model_sha256"]


def test_init_starts_from_a_state_dict(undrift, small, finished):
    result = undrift("run", *small, "--init", "first/model.safetensors", "--json", "--quiet", "--seed", "1")
    assert result.code == 0, result.err
    assert result.json["accuracy"] > finished["accuracy"]
    other = undrift("run", "--clients", "5", "--model", "mlp(9)", "--init", "first/model.safetensors")
    assert other.code == 2
    assert "shape" in other.sentence


def test_runs_lists_without_torch_and_leaves_out_what_is_no_run(tmp_path, undrift):
    import json
    import subprocess
    import sys

    undrift("run", "--rounds", "1", "--clients", "2", "--engine", "inline", "--quiet", "--out", str(tmp_path / "one"))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "run.toml").write_text("method = 3")
    code = (
        "import sys\nfrom undrift.cli import command\n"
        f"assert command(['runs', {str(tmp_path)!r}, '--json']) == 0\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)
    assert found["run"] == str(tmp_path / "one")
    assert found["rounds"] == found["of"] == 1
    assert found["accuracy"] > 0
