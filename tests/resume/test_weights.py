"""Files of weights: equal models have equal files."""

from __future__ import annotations

import torch
from safetensors import safe_open

import undrift as ud
from undrift.store.weights import weights_file


def test_equal_models_have_equal_bytes(tmp_path):
    tied = torch.arange(6.0).view(2, 3)
    state = {"ünlike.weight": tied, "head.weight": tied, "steps": torch.tensor(3)}
    metadata = {"model": "mlp", "format": "pt", "base": "ab" * 32, "more": "é"}
    written = {weights_file(state, dict(list(metadata.items())[::order])) for order in (1, -1) for _ in range(20)}
    assert len(written) == 1
    path = tmp_path / "model.safetensors"
    path.write_bytes(written.pop())
    with safe_open(path, "pt") as file:
        assert file.metadata() == metadata
        assert set(file.keys()) == set(state)
        assert all(torch.equal(file.get_tensor(name), value) for name, value in state.items())


def test_a_run_that_is_repeated_writes_the_same_file(tmp_path):
    files = []
    for name in "abcd":
        ud.run(
            "fedavg",
            data="digits",
            clients=3,
            rounds=1,
            epochs=1,
            model="logistic",
            engine="inline",
            out=tmp_path / name,
        )
        files.append((tmp_path / name / "model.safetensors").read_bytes())
    assert len(set(files)) == 1
