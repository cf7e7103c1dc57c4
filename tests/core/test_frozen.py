"""Frozen parameters are no part of the vector: they are held once, in their own dtype, and named by their hash."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
import safetensors.torch
import torch
from torch import nn

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.core.frozen import digest_of
from undrift.core.vector import Flat
from undrift.engine.object_store import ArrayReader, ArrayWriter
from undrift.engine.spawn import start_workers, stop_workers

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
RUN = {"rounds": 3, "epochs": 2, "batch": 8, "lr": 0.1, "engine": "inline", "out": False}


class Body(nn.Module):
    """A body that stays as it is (a frozen parameter, or a buffer outside the state dict), and a head that learns."""

    def __init__(self, frozen: bool = True, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        weight = torch.randn(8, 6, generator=draw).to(dtype)
        if frozen:
            self.weight = nn.Parameter(weight, requires_grad=False)
        else:
            self.register_buffer("weight", weight, persistent=False)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 3)
        with torch.no_grad():
            for parameter in self.head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body = (x.flatten(1).to(self.weight.dtype) @ self.weight.T).float()
        return self.head(torch.relu(self.norm(body)))


def body(**how):
    return lambda: Body(**how)


def six():
    """A tiny federation whose samples have six numbers."""
    draw = torch.Generator().manual_seed(1)
    clients = [(torch.randn(12, 6, generator=draw), torch.randint(3, (12,), generator=draw)) for _ in range(4)]
    return ud.Federation.from_clients([(x.numpy(), y.numpy()) for x, y in clients])


def test_the_vector_has_what_is_trained_and_the_buffers():
    flat = Flat(Body(), X)
    assert [entry.name for entry in flat.layout.entries] == [
        "norm.weight", "norm.bias", "head.weight", "head.bias", "norm.running_mean", "norm.running_var",
    ]  # fmt: skip
    assert flat.layout.n == 16 + 27 + 16
    assert flat.layout.entry("weight").kind == "frozen"
    assert flat.layout.entry("weight").shape == (8, 6)


def test_copies_of_a_network_hold_the_same_frozen_memory():
    flat = Flat(Body(), X)
    twin = flat.twin()
    assert twin.module.weight.data_ptr() == flat.module.weight.data_ptr()
    assert twin.module.head.weight.data_ptr() != flat.module.head.weight.data_ptr()
    assert torch.equal(twin(X), flat(X))


def test_tied_frozen_parameters_stay_tied_in_a_copy():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
            self.two.weight = self.one.weight
            self.one.weight.requires_grad_(False)

        def forward(self, x):
            return self.head(self.two(self.one(x)))

    flat = Flat(Tied(), X)
    assert flat.frozen_names() == {"one.weight", "two.weight"}
    twin = flat.twin().module
    assert twin.two.weight is twin.one.weight
    assert set(flat.state_dict(flat.vector)) == set(Tied().state_dict())


def test_training_is_that_of_a_body_that_the_vector_never_had():
    """Law: a frozen parameter and a tensor outside the state dict give the same model, bit for bit."""
    frozen, outside = (ud.run("scaffold", six(), model=body(frozen=how), **RUN) for how in (True, False))
    assert torch.equal(frozen.vector, outside.vector)
    assert torch.equal(frozen.model.weight, Body().weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_frozen_parameter_keeps_its_dtype_and_its_values(dtype):
    result = ud.run("fedavg", six(), model=body(dtype=dtype), **RUN)
    assert result.model.weight.dtype == dtype
    assert torch.equal(result.model.weight, Body(dtype=dtype).weight)
    assert result.vector.dtype == torch.float32
    assert not [note for note in result.setup.notices if "float32" in note]


def test_a_network_that_cannot_mix_dtypes_is_held_as_float32_and_says_so():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    module[0].bfloat16().requires_grad_(False)
    flat = Flat(module, X)
    assert flat.layout.entry("0.weight").dtype == "float32"
    assert "0.weight was bfloat16 and is held as float32" in flat.layout.notes


def test_logits_of_a_base_in_half_precision_are_float32():
    module = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3).bfloat16().requires_grad_(False))
    module[0].register_forward_hook(lambda m, args, out: out.bfloat16())
    assert Flat(module, X)(X).dtype == torch.float32


def test_the_hash_is_of_names_dtypes_shapes_and_values():
    base = {"a": torch.arange(6.0), "b": torch.ones(2, dtype=torch.bfloat16)}
    same = {"b": torch.ones(2, dtype=torch.bfloat16), "a": torch.arange(6.0)}
    assert digest_of(base) == digest_of(same)
    others = [
        {"a": torch.arange(6.0)},
        {**base, "a": torch.arange(6.0).view(2, 3)},
        {**base, "b": torch.ones(2, dtype=torch.float16)},
        {**base, "a": torch.arange(6.0) + torch.eye(6)[5] * 1e-6},
        {"c": base["a"], "b": base["b"]},
    ]
    assert len({digest_of(base), *map(digest_of, others)}) == 6
    assert digest_of({}) == ""


def test_a_network_that_writes_into_a_frozen_parameter_is_refused():
    class Counting(Body):
        def forward(self, x):
            with torch.no_grad():
                self.weight.add_(1.0)
            return super().forward(x)

    with pytest.raises(BadRequest, match="Counting writes into its frozen parameter weight; keep what changes between"):
        ud.run("fedavg", six(), model=Counting, **RUN)


def test_workers_map_the_frozen_parameters_and_give_inlines_bits():
    workers = start_workers(2)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            settings = {**RUN, "model": body(dtype=dtype)}
            inline = ud.run("ditto", six(), **settings)
            spread = ud.run("ditto", six(), **{**settings, "engine": "processes"}, started=workers)
            assert torch.equal(inline.vector, spread.vector)
            assert torch.equal(spread.model.weight, Body(dtype=dtype).weight)
            assert torch.equal(spread.personal(1).weight, Body(dtype=dtype).weight)
    finally:
        stop_workers(workers)


def test_nothing_in_a_run_folder_holds_them_and_their_hash_does_not_change(tmp_path):
    big = nn.Sequential(nn.Linear(6, 5000), nn.ReLU(), nn.Linear(5000, 3))
    big[0].requires_grad_(False)
    base = digest_of({"0.weight": big[0].weight, "0.bias": big[0].bias})
    ud.run("scaffold", six(), model=big, **{**RUN, "out": str(tmp_path / "run")})
    about = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["about"]
    assert about["base"] == base
    state = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert set(state) == {"2.weight", "2.bias"}
    trained = 4 * 15003  # model, SCAFFOLD's c and one c_i per client: far below the base's 4 · 35000 for each
    checkpoints = [path for path in (tmp_path / "run" / "checkpoints").rglob("*") if path.is_file()]
    assert 0 < max(path.stat().st_size for path in checkpoints) < 4 * trained


def test_a_run_is_resumed_on_its_own_base_only(tmp_path):
    out = str(tmp_path / "run")
    ud.run("fedavg", six(), model=body(), **{**RUN, "out": out})
    more = ud.resume(out, federation=six(), model=body(), rounds=5)
    assert torch.equal(more.vector, ud.run("fedavg", six(), model=body(), **{**RUN, "rounds": 5}).vector)
    kept = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["about"]["base"]
    sentence = f"the model's frozen parameters have SHA-256 [0-9a-f]{{16}}…, those that the run in .* was made with {kept[:16]}…"
    with pytest.raises(BadRequest, match=sentence):
        ud.resume(out, federation=six(), model=body(seed=1), rounds=7)


def test_a_file_that_was_trained_on_another_base_is_refused(tmp_path):
    out, file = str(tmp_path / "run"), str(tmp_path / "run" / "model.safetensors")
    first = ud.run("fedavg", six(), model=body(), **{**RUN, "out": out})
    again = ud.run("fedavg", six(), model=body(), init=file, **{**RUN, "rounds": 1, "lr": 1e-30})
    assert torch.allclose(again.vector[:43], first.vector[:43])  # P: BatchNorm's statistics move on
    with pytest.raises(
        BadRequest, match=r"was trained on a base with SHA-256 [0-9a-f]{16}…, and the frozen parameters"
    ):
        ud.run("fedavg", six(), model=body(seed=1), init=file, **RUN)


def frozen_head():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    module[2].requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("fedper", "the head 2 is frozen, so head() has nothing to keep private"),
        ("fedrep", "the head 2 is frozen, so head() has nothing to keep private"),
        ("fednp", "fednp puts a prior on the last linear layer, and 2 of this model is frozen"),
        ("fedma", "2 is frozen, so its inputs and units keep their order"),
    ],
)
def test_methods_that_need_a_trained_head_refuse_a_frozen_one(method, sentence):
    with pytest.raises(BadRequest, match=re.escape(sentence)):
        ud.run(method, six(), model=frozen_head, **RUN)


def test_training_in_turns_needs_a_trained_head():
    with pytest.raises(BadRequest, match="fedrep trains the head separately, and 2 of this model is frozen"):
        ud.run("fedavg", six(), model=frozen_head, personalize="fedrep", **RUN)


@pytest.mark.parametrize("method", ["fedproto", "moon", "fedrs", "flood", "fedmr"])
def test_other_methods_run_with_a_frozen_head(method):
    assert torch.isfinite(ud.run(method, six(), model=frozen_head, **RUN).vector).all()


def test_tensors_of_every_dtype_pass_rays_object_store():
    """numpy has no bfloat16: the bits travel, and come back as what they were."""
    writer = ArrayWriter()
    tensors = [torch.arange(7.0).to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    places = [writer.place(tensor) for tensor in tensors]
    for copy in (True, False):
        reader = ArrayReader(writer.arrays, copy=copy)
        for tensor, place in zip(tensors, places, strict=True):
            read = reader.tensor(place)
            assert read.dtype == tensor.dtype
            assert torch.equal(read, tensor)


PROPORTIONAL = """
import re, sys
from pathlib import Path
import torch
from torch import nn
import undrift as ud
from undrift.engine.spawn import start_workers, stop_workers
from undrift.experiment.callback import RunCallback
from undrift.testing import tiny

class Base(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.base = nn.Parameter(torch.full((frozen,), 1e-6), requires_grad=False)
        self.head = nn.LazyLinear(3)
    def forward(self, x):
        return self.head(x.flatten(1)) + self.base.mean()

def held(pids):
    # Without pages of files: of torch's own, these three hold less whenever another process on the machine maps them too.
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(size) for text in texts for size in re.findall(r"^Pss_(?:Anon|Shmem):\\s+(\\d+)", text, re.M)) / 1024

class Watch(RunCallback):
    def on_round(self, *args, **more):
        self.most = max(getattr(self, "most", 0), held(["self", *[w.process.pid for w in workers]]))

found = []
for frozen in (1_000, 20_000_000):
    workers = start_workers(2)
    watch = Watch()
    ud.run("fedavg", tiny(clients=6), model=lambda: Base(frozen), rounds=4, engine="processes", started=workers,
           callback=watch, out=False)
    found.append(watch.most)
    stop_workers(workers)
print(round(found[1] - found[0]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="proportional set sizes are Linux's")
def test_driver_and_two_workers_hold_twenty_million_frozen_parameters_once():
    """Law: 20 million float32 are 76 MB. The three processes together have about that more, not three times it."""
    done = subprocess.run([sys.executable, "-c", PROPORTIONAL], capture_output=True, text=True, check=True)
    assert 70 <= int(done.stdout) <= 100, done.stdout
