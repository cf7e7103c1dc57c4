"""The path of a new user: a method of one's own in a file is checked, compared, resumed, repeated and deployed by its name.

Every command is one that the tutorial or the guide names, typed as there.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.foreign_code import foreign_code, untrusted

SAM = '''"""FedSAM, by a new user."""

from dataclasses import dataclass
from typing import ClassVar

from steps import unit

from undrift.contract.parts import Objective


@dataclass(frozen=True)
class FedSAM(Objective):
    """Each step uses the gradient at the worst point nearby."""

    rho: float = 0.05
    needs: ClassVar = ("gradient_at",)

    def gradient(self, P, G, batch, job, scratch):
        G.copy_(batch.gradient_at(P + self.rho * unit(G)))


def fedsam(rho: float = 0.05):
    """SAM at every client."""
    return FedSAM(rho)
'''
STEPS = """def unit(G):
    return G / G.norm().clamp(min=1e-12)
"""
OTHERS = """import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def net(shape, classes, width=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), width), nn.ReLU(), nn.Linear(width, classes))


def focal(logits, y, gamma=2.0):
    ce = F.cross_entropy(logits, y, reduction="none")
    return (1 - (-ce).exp()) ** gamma * ce


def top(logits, y, k=2):
    return (logits.topk(k, 1).indices == y[:, None]).any(1).float().mean().item()


def striped(y, clients, stream, groups=None, skip=0):
    return [np.arange(k + skip, len(y), clients) for k in range(clients)]


def first(stream, population, m=2):
    return range(m)


def two_parts():
    return ["scaffold", "fedlc(tau=0.5)"]


def number():
    return 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The user's files in the working directory, and a process that has not imported them."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("sam", SAM), ("steps", STEPS), ("mine", OTHERS)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for name in ("sam", "steps", "mine"):
        sys.modules.pop(name, None)


def run_toml(folder) -> dict:
    return tomllib.loads((Path(folder) / "run.toml").read_text())


def test_a_name_of_ones_own_is_recorded_and_repeats_and_resumes_bit_for_bit(own, undrift, small):
    whole = undrift("run", "--method", "sam:fedsam(rho=0.1)", *small, "--out", "whole", "--json", "--quiet")
    assert whole.code == 0, whole.err
    written = run_toml("whole")
    assert written["method"] == "sam:fedsam(rho=0.1)"
    assert written["parts"][0] == "objective.sam:FedSAM(rho=0.1)"
    assert sorted(written["about"]["code"]) == ["sam.py", "steps.py"]  # and what it imports
    assert (own / "whole" / "code" / "steps.py").read_text() == STEPS
    forget()
    again = undrift("run", "whole/run.toml", "--out", "again", "--json", "--quiet")
    assert again.json["model_sha256"] == whole.json["model_sha256"]
    forget()
    undrift("run", "--method", "sam:fedsam(rho=0.1)", *small, "--rounds", "1", "--out", "part", "--quiet")
    resumed = undrift("resume", "part", "--trust", "--rounds", "2", "--json", "--quiet")
    assert resumed.code == 0, resumed.err
    assert resumed.json["model_sha256"] == whole.json["model_sha256"]


def test_resume_says_when_the_file_has_changed_and_what_to_do(own, undrift, small):
    undrift("run", "--method", "scaffold+sam:fedsam", *small, "--out", "first", "--quiet")
    (own / "steps.py").write_text(STEPS.replace("1e-12", "1e-6"))
    refused = undrift("resume", "first", "--trust", "--rounds", "3")
    assert refused.code == 2
    assert "steps.py has changed since the run in first began" in refused.sentence
    assert "cp first/code/steps.py steps.py" in refused.sentence
    repeated = undrift("run", "first/run.toml", "--out", "second", "--quiet")
    assert repeated.code == 0
    assert "note: steps.py has changed" in repeated.err
    shutil.copy("first/code/steps.py", "steps.py")
    assert undrift("resume", "first", "--trust", "--rounds", "3", "--quiet").code == 0


def test_a_file_that_is_gone_is_taken_from_the_run(own, undrift, small):
    undrift("run", "--method", "sam:fedsam", *small, "--out", "first", "--quiet")
    for name in ("sam.py", "steps.py"):
        (own / name).unlink()
    forget()
    found = undrift("resume", "first", "--trust", "--rounds", "3", "--quiet")
    assert found.code == 0, found.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--method", "scaffold+sam:fedsam"), "objective.sam:FedSAM(rho=0.05)"),
        (("--method", "fedprox", "--objective", "sam:fedsam(0.2)"), "objective.sam:FedSAM(rho=0.2)"),
        (("--method", "flood+objective.sam:FedSAM(rho=0.3)@bound"), "objective.sam:FedSAM(rho=0.3)"),
        (("--method", "mine:two_parts"), "objective.fedlc(tau=0.5"),
    ],
)
def test_it_composes_like_any_name(own, undrift, small, options, part):
    done = undrift("run", *options, *small, "--out", "first", "--quiet")
    assert done.code == 0, done.err
    assert any(written.startswith(part) for written in run_toml("first")["parts"])
    assert undrift("run", "first/run.toml", "--out", "again", "--quiet").code == 0


def test_models_losses_metrics_partitions_and_selections_too(own, undrift):
    options = (
        "--model", "mine:net(width=6)", "--loss", "mine:focal(gamma=1)", "--metrics", "mine:top(k=3), mine:top",
        "--partition", "mine:striped(skip=1)", "--selection", "mine:first(m=3)", "--clients", "4", "--rounds", "2",
    )  # fmt: skip
    first = undrift("run", *options, "--out", "first", "--json", "--quiet")
    assert first.code == 0, first.err
    written = run_toml("first")
    assert [written[name] for name in ("model", "loss", "metrics", "partition", "selection")] == [*options[1:10:2]]
    assert list(written["about"]["code"]) == ["mine.py"]
    names = {name for (name,) in ud.load("first", trust=True).rows("SELECT DISTINCT metric FROM metrics")}
    assert {"top", "top(k=3)"} <= names
    assert ud.load("first", trust=True).rows("SELECT DISTINCT cohort FROM rounds") == [("[0, 1, 2]",)]
    again = undrift("run", "first/run.toml", "--out", "again", "--json", "--quiet")
    assert again.json["model_sha256"] == first.json["model_sha256"]
    assert undrift("resume", "first", "--trust", "--rounds", "3", "--quiet").code == 0


def test_methods_and_check_know_it(own, undrift):
    described = undrift("methods", "sam:fedsam(rho=0.1)", "--json").json
    assert described["what"] == "SAM at every client."
    assert described["parameters"] == {"rho": "0.05"}
    assert described["costs"]["training"] == 2
    assert described["laws"] == []
    assert "none of ours" in undrift("methods", "sam:FedSAM").out
    joined = undrift("methods", "scaffold+sam:fedsam", "--json").json
    assert joined["what"] == "Control variates that correct every local step. SAM at every client."
    assert joined["parameters"] == {"scaffold.scaled": "false", "scaffold.normalise": "false", "sam:fedsam.rho": "0.05"}
    assert joined["laws"] == ["test_scaffold"]  # ours has laws, the user's own has none
    assert "FedSAM, by a new user." in joined["about"]
    checked = undrift("check", "sam:fedsam")
    assert checked.out == "sam:fedsam keeps the contract: objective.fedsam\n"


def test_a_stopped_run_says_the_command_that_resumes_it_as_typed(own, undrift, small, monkeypatch):
    def stop(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr("undrift.round.loop.Loop.run", stop)
    stopped = undrift("run", "--method", "scaffold+sam:fedsam", *small, "--out", "a run", "--quiet")
    assert (stopped.code, "`undrift resume 'a run' --trust` resumes the run" in stopped.err) == (130, True)
    stopped = undrift("run", "--method", "scaffold", *small, "--out", "other", "--quiet")
    assert "`undrift resume other` resumes the run" in stopped.err


def test_check_of_a_part_that_raises_shows_its_traceback_and_one_sentence(own, undrift):
    text = (own / "sam.py").read_text()
    assert "def gradient(self, P, G, batch, job, scratch)" in text
    (own / "sam.py").write_text(text.replace("self, P, G, batch, job, scratch", "self, P, G, batch"))
    checked = undrift("check", "sam:fedsam")
    assert checked.code == 1
    *trace, sentence = checked.err.strip().splitlines()
    assert trace[0].startswith("Traceback")
    assert sentence.startswith("undrift: objective.fedsam breaks the contract: it raised TypeError: ")
    assert "takes 4 positional arguments but 6 were given" in sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "sam:fedsam(sigma=1)"), "unknown parameter of sam:fedsam 'sigma'"),
        (("--method", "sam:fedsam(rho=wide)"), "rho must be a number"),
        (("--method", "sam:nothing"), "nothing"),
        (("--method", "nowhere:fedsam"), "cannot be imported"),
        (("--method", "mine:number"), "gives int; it must give a part"),
        (("--method", "fedavg@sam:fedsam"), "weighting belongs here"),
        (("--weighting", "sam:fedsam"), "weighting belongs here"),
        (("--model", "mine:net(9)"), "by their names"),
        (("--loss", "mine:focal(beta=1)"), "unknown parameter of mine:focal 'beta'"),
        (("--selection", "mine:first(m=9)"), "not clients in 0…4"),
    ],
)
def test_what_it_cannot_be_is_one_sentence(own, undrift, small, options, words):
    refused = undrift("run", *small, *options, "--out", "first", "--quiet")
    assert refused.code in (1, 2)
    assert words in refused.sentence


def test_which_code_a_run_names_is_known_without_importing_it():
    options = {
        "method": "scaffold+sam:fedsam", "parts": ["objective.sam:FedSAM(rho=0.1)", "weighting.a.b:c()", "combine.mean()"],
        "model": "object:Net", "loss": "mine:focal(gamma=1)", "metrics": "mine:top, other:f", "data": "x:y", "partition": "iid",
    }  # fmt: skip
    assert foreign_code(options) == ["sam:FedSAM", "a.b:c", "mine:focal", "mine:top", "other:f"]
    assert foreign_code({"method": "scaffold+sam:fedsam@calm:x"}) == ["sam:fedsam", "calm:x"]
    assert foreign_code(options, {"loss": 1, "metrics": "f"}) == ["sam:FedSAM", "a.b:c"]
    assert foreign_code({"parts": ["objective.object:Own(rho=0.1, f=a:b)", "weighting.size()"]}) == []
    assert foreign_code({"method": 'private.named("a:b")', "model": "undrift.models:mlp"}) == []


def test_who_trusts_one_name_of_a_package_trusts_the_package():
    assert untrusted(["sam:FedSAM", "mine:f"], ["sam:fedsam"]) == ["mine:f"]
    assert untrusted(["sam:FedSAM"], True) == []
    assert untrusted(["sam:FedSAM"], False) == ["sam:FedSAM"]


def test_compare_over_three_seeds_and_resume_after_a_kill(own, undrift):
    methods = ("sam:fedsam(rho=0.05)", "scaffold+sam:fedsam", "fedavg")
    options = ("--seeds", "3", "--clients", "4", "--rounds", "2", "--epochs", "1", "--model", "mlp(8)")
    done = undrift("compare", *methods, *options, "--out", "three", "--json", "--quiet")
    assert done.code == 0, done.err
    rows = {(row["method"], row["seed"]): row["model_sha256"] for row in done.json["rows"]}
    assert sorted({method for method, _ in rows}) == sorted(methods)
    assert len(set(rows.values())) == 9
    lines = (own / "three" / "rows.jsonl").read_text().splitlines(keepends=True)
    (own / "three" / "rows.jsonl").write_text("".join(lines[:4]))  # as if killed after the fourth run
    forget()
    again = undrift("compare", *methods, *options, "--resume", "--out", "three", "--json", "--quiet")
    assert again.code == 0, again.err
    assert {(row["method"], row["seed"]): row["model_sha256"] for row in again.json["rows"]} == rows


def test_the_processes_engine_and_python_know_it(own):
    federation = ud.federate("digits", clients=4)
    settings = {"rounds": 2, "model": "mlp(8)", "epochs": 1}
    inline = ud.run("sam:fedsam", federation, out="inline", engine="inline", **settings)
    from sam import FedSAM

    given = ud.run(FedSAM(), federation, out="given", engine="processes", workers=1, **settings)
    assert given.summary["model_sha256"] == inline.summary["model_sha256"]
    assert run_toml("given")["parts"] == run_toml("inline")["parts"]
    assert ud.resume("given", rounds=3, federation=federation, trust=True).summary["rounds"] == 3


# ---- deployment ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # of Flower's packing
def test_it_is_deployed_by_name(own, undrift, small):
    pytest.importorskip("flwr")
    from undrift.deploy import spec

    undrift("run", "--method", "scaffold+sam:fedsam(rho=0.1)", *small, "--out", "chosen", "--quiet")
    made = undrift("deploy", "init", "clinics", "--sites", "berlin,oslo", "--run", "chosen")
    assert made.code == 0, made.err
    assert (own / "clinics" / "sam.py").read_text() == SAM
    assert '"/sam.py", "/steps.py"' in (own / "clinics" / "pyproject.toml").read_text()
    assert sorted(run_toml("clinics")["about"]["code"]) == ["sam.py", "steps.py"]
    for site in ("berlin", "oslo"):
        folder = own / "sites" / site
        folder.mkdir(parents=True)
        x, y = digits(site)
        np.savez(folder / "data.npz", x=x, y=y)
        (folder / "data.py").write_text(DATA)
    for name in ("sam.py", "steps.py"):  # a site has only what the app brings
        (own / name).unlink()
    forget()
    site = undrift("deploy", "check", "clinics", "--site", "oslo", "--data", own / "sites" / "oslo" / "data.py")
    assert site.code == 0, site.err
    assert "scaffold+sam:fedsam(rho=0.1)" in site.out
    deployed = serve(spec.read(own / "clinics"), own)
    assert (own / "served" / "code" / "sam.py").read_text() == SAM
    federation = ud.Federation.from_clients(
        [digits(site) for site in ("berlin", "oslo")], labels=[str(c) for c in range(10)]
    )
    simulated = ud.run("scaffold+sam:fedsam(rho=0.1)", federation, rounds=2, model="mlp(8)", selection="all", out=False)
    assert torch.equal(deployed.server_state.evaluated, simulated.server_state.evaluated)
    (own / "clinics" / "sam.py").write_text(SAM + "# edited\n")
    forget()
    app = spec.read(own / "clinics")
    with pytest.raises(BadRequest, match=r"not the sam\.py that this deployment was made with"):
        app.setup(spec.server_federation(app, [1, 1]))


DATA = """import numpy as np
from pathlib import Path

LABELS = [str(c) for c in range(10)]


def load():
    file = np.load(Path(__file__).with_name("data.npz"))
    return file["x"], file["y"]
"""


def digits(site: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = ud.federate("digits", "dirichlet(0.5)", clients=2, seed=3).train(("berlin", "oslo").index(site))
    return x[:40, :, :, 0].numpy(), y[:40].numpy()


def serve(app, own):
    """The deployment in one process: envelopes pass through bytes, and each site has its own folder."""
    from undrift.deploy import client, server
    from undrift.deploy.envelope import Parcel, raw
    from undrift.deploy.handshake import Connection

    def parcel(envelope):
        arrays = {n: (str(t.dtype).removeprefix("torch."), tuple(t.shape), raw(t)) for n, t in envelope.arrays.items()}
        return Parcel(envelope.text, arrays)

    class InProcess:
        pause, replies = 0.001, {}

        def nodes(self):
            return {number: Connection(app.sites[number], "") for number in (0, 1)}

        def send(self, node, envelope, seconds):
            config = {"site": app.sites[node], "data": str(own / "sites" / app.sites[node] / "data.py")}
            self.replies[str(len(self.replies))] = parcel(client.handle(app, config, parcel(envelope).open()))
            return str(len(self.replies) - 1)

        def fetch(self, message_ids):
            return {one: self.replies[one] for one in message_ids if one in self.replies}

    return server.serve_run(app, InProcess(), {"out": str(own / "served")}, lambda text: None)
