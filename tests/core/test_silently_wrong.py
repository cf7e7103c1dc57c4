"""Mistakes that would give a wrong result without a word: each is either harmless or refused before round 0."""

from __future__ import annotations

import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.cli.compare import read_grid
from undrift.core.errors import BadRequest
from undrift.experiment.callback import RunCallback
from undrift.experiment.options import HINTS, from_keywords

QUICK = {"rounds": 1, "epochs": 1, "selection": "all", "out": False, "engine": "inline"}


@pytest.fixture(scope="module")
def small():
    return ud.federate("digits", "iid", 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x.flatten(1))


# ---- the user's module ---------------------------------------------------------------------------------------


def test_a_run_leaves_the_module_it_is_given_as_it_is(small):
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = ud.run("fedavg", small, model=net, **QUICK)
    second = ud.run("fedavg", small, model=net, **QUICK)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(first.vector, second.vector)
    assert first.model is not net
    assert first.setup.runtime.model.module is not net
    assert net.training


def test_a_function_that_returns_one_module_again_and_again_starts_every_run_from_it(small):
    net = Net()
    first, second = (ud.run("fedavg", small, model=lambda: net, **QUICK).vector for _ in range(2))
    assert torch.equal(first, second)


def test_every_method_of_a_comparison_starts_from_the_module_as_given(small, tmp_path):
    net = Net()
    settings = {name: value for name, value in QUICK.items() if name != "out"}
    done = ud.compare(
        ["fedavg", ("fedavg", {"momentum": 0.9})], small, model=net, out=tmp_path / "c", **settings, workers=1
    )
    assert done.rows[0]["model_sha256"] == done.rows[1]["model_sha256"]


def test_processes_start_from_the_module_as_given(small):
    net = Net()
    inline = ud.run("fedavg", small, model=net, **QUICK)
    processes = ud.run("fedavg", small, model=net, **{**QUICK, "engine": "processes", "workers": 2})
    assert torch.equal(inline.vector, processes.vector)


def test_a_lazy_module_gets_the_same_first_values_in_every_run(small):
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    first, second = (ud.run("fedavg", small, model=net, **QUICK).vector for _ in range(2))
    assert torch.equal(first, second)
    assert isinstance(net[1], nn.LazyLinear)


# ---- code that writes into what it is given ------------------------------------------------------------------


class Shifts(Net):
    def forward(self, x):
        x -= 0.5
        return super().forward(x)


class ShiftsInTraining(Net):
    def forward(self, x):
        if self.training:
            x -= 0.5
        return super().forward(x)


def loss_that_clears(z, y):
    value = nn.functional.cross_entropy(z, y, reduction="none")
    y.zero_()
    return value


def metric_that_clears(z, y):
    z.zero_()
    return 1.0


def metric_that_clears_the_labels(z, y):
    y.zero_()
    return 1.0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"model": Shifts}, "Shifts"),
        ({"model": Shifts()}, "Shifts"),
        ({"model": ShiftsInTraining}, "ShiftsInTraining"),
        ({"loss": loss_that_clears}, "loss_that_clears"),
        ({"metrics": metric_that_clears}, "metric_that_clears"),
        ({"metrics": metric_that_clears_the_labels}, "metric_that_clears_the_labels"),
    ],
)
def test_code_that_overwrites_the_data_is_refused_and_the_data_stay(options, name):
    federation = ud.federate("digits", "iid", 3)
    kept = [value.clone() for value in (federation.x, federation.y, federation.test_x, federation.test_y)]
    with pytest.raises(BadRequest, match=rf"{name} .*in place"):
        ud.run("fedavg", federation, **QUICK, **options)
    now = (federation.x, federation.y, federation.test_x, federation.test_y)
    assert all(torch.equal(*pair) for pair in zip(kept, now))


# ---- options that would have no effect -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"noise": "symmetric(0.9)"},
        {"partition": "dirichlet(0.1)"},
        {"domains": "identity+inverted"},
        {"validation": 0.2},
        {"data": "blobs"},
        {"clients": 30},
        {"proxy": 0.1},
        {"data_seed": 7},
    ],
)
def test_an_option_that_makes_a_federation_is_refused_beside_one(small, tmp_path, options):
    (name,) = options
    with pytest.raises(BadRequest, match=rf"{name}=.*ud\.federate"):
        ud.run("fedavg", small, **QUICK, **options)
    settings = {**QUICK, "out": tmp_path / "c"}
    with pytest.raises(BadRequest, match=rf"{name}=.*ud\.federate"):
        ud.compare(["fedavg"], small, **settings, **options)
    with pytest.raises(BadRequest, match=rf"{name}=.*ud\.federate"):
        ud.compare([("fedavg", options)], small, **settings)


def test_options_that_say_what_the_federation_is_are_taken(tmp_path):
    federation = ud.federate("digits", "iid", 3, validation=0.2, seed=4, noise="symmetric(0.1)")
    settings = {**QUICK, "out": tmp_path / "run"}
    options = {"clients": 3, "partition": "iid", "data_seed": 4, "noise": "symmetric(0.1)", "validation": 0.2}
    ud.run("fedavg", federation, **settings, **options)
    assert ud.run("fedavg", federation, **QUICK, stop_at=0.9).setup.options.validation == 0.2


def test_the_run_toml_of_own_clients_records_no_partition(tmp_path):
    clients = [(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(3)]
    federation = ud.Federation.from_clients(clients)
    ud.run("fedavg", federation, **{**QUICK, "out": tmp_path / "run"})
    table = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert "partition" not in table
    assert table["clients"] == 3
    assert ud.resume(tmp_path / "run", rounds=2, federation=federation).summary["rounds"] == 2


# ---- grids ---------------------------------------------------------------------------------------------------


def test_a_grid_needs_a_federation_with_validation_data(small, tmp_path):
    settings = {**QUICK, "out": tmp_path / "c"}
    grid = {"lr": [1e-9, 0.05]}
    for options in ({"validation": 0.2}, {}):
        with pytest.raises(BadRequest, match="validation"):
            ud.compare(["fedavg"], small, grid=grid, **settings, **options)
    done = ud.compare(["fedavg"], ud.federate("digits", "iid", 3, validation=0.2), grid=grid, **settings)
    assert done.rows[0]["chosen"] == {"lr": 0.05}


@pytest.mark.parametrize(
    "key",
    ["data", "partition", "clients", "noise", "domains", "validation", "proxy", "unseen", "seed", "data_seed"],
)
def test_a_grid_does_not_choose_the_easiest_federation(key, tmp_path):
    with pytest.raises(BadRequest, match=f"--grid {key} would choose"):
        ud.compare(["fedavg"], grid={key: [2, 3]}, validation=0.2, **{**QUICK, "out": tmp_path / "c"})


def test_a_grid_option_given_twice_has_the_values_of_both():
    assert read_grid(["lr=0.1,0.3", "lr=0.2,0.1", "epochs=1"]) == {"lr": [0.1, 0.3, 0.2], "epochs": [1]}


@pytest.mark.parametrize("name", [name for name, hint in HINTS.items() if hint is bool])
@pytest.mark.parametrize("value", ["false", 0, None])
def test_what_is_no_bool_is_refused(name, value):
    with pytest.raises(BadRequest, match=f"--{name.replace('_', '-')} must be true or false"):
        from_keywords({name: value})


# ---- folders -------------------------------------------------------------------------------------------------


def test_force_does_not_move_a_live_run_aside(small, tmp_path):
    settings = {**QUICK, "out": tmp_path / "run"}

    class Intruder(RunCallback):
        said = ""

        def on_round(self, *about):
            with pytest.raises(BadRequest, match="in use") as refused:
                ud.run("fedavg", small, **settings, force=True)
            self.said = str(refused.value)

    intruder = Intruder()
    ud.run("fedavg", small, callback=intruder, **settings)
    assert "wait for it or stop it" in intruder.said
    ud.run("fedavg", small, **settings, force=True)  # it has ended
    assert (tmp_path / "run.old-1" / "run.toml").exists()


# ---- what a module remembers between calls -------------------------------------------------------------------


class Forgetful(Net):
    """Scales its output by a buffer that is not in the state dict and grows with every call."""

    def __init__(self, first=1.0):
        super().__init__()
        self.register_buffer("scale", None if first is None else torch.tensor(first), persistent=False)

    def forward(self, x):
        self.scale = torch.tensor(1.1) if self.scale is None else self.scale * 1.1
        return super().forward(x) * self.scale


class InPlace(Forgetful):
    def forward(self, x):
        self.scale.mul_(1.1)
        return Net.forward(self, x) * self.scale


class Counts(Net):
    """The same with an attribute, which nothing can reset."""

    calls = 0

    def forward(self, x):
        self.calls += self.training
        return super().forward(x) / (1 + self.calls)


class CountsForItself(Net):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("model", [Forgetful, lambda: Forgetful(None), InPlace])
def test_buffers_outside_the_state_dict_do_not_depend_on_the_workers(small, model):
    inline, two = (
        ud.run("fedavg", small, model=model, **{**QUICK, "rounds": 2, "engine": engine, "workers": 2})
        for engine in ("inline", "processes")
    )
    assert torch.equal(inline.vector, two.vector)
    assert inline.summary["stages"] == two.summary["stages"]


def test_runs_in_threads_have_the_bits_of_a_run_alone(small):
    alone = ud.run("scaffold", small, model=Forgetful, **QUICK).vector
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(ud.run, "scaffold", small, model=Forgetful, **QUICK) for _ in range(3)]
    assert all(torch.equal(run.result().vector, alone) for run in runs)


def test_a_module_whose_output_depends_on_its_calls_is_refused(small):
    with pytest.raises(BadRequest, match="the model Counts gives different outputs"):
        ud.run("fedavg", small, model=Counts, **QUICK)
    ud.run("fedavg", small, model=CountsForItself, **QUICK)
    ud.run("fedavg", small, model=nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)), **QUICK)
