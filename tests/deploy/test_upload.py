"""Upload parts at real sites: the same bits as in a simulation, fewer bytes on the wire, noise nobody can repeat."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch


@pytest.mark.parametrize("method", ["fedavg+topk(0.1)", "scaffold+topk(0.2)+quantize(4)", "fedper+quantize(8)"])
def test_compressed_updates_give_the_simulations_bits(method, deploy, simulate):
    assert torch.equal(deploy(method).serve().vector, simulate(method).vector)


def bytes_up(deployment) -> int:
    lines = map(json.loads, (deployment.run / "border.jsonl").read_text().splitlines())
    return sum(line["bytes"] for line in lines if line["way"] == "up" and line["round"] in (1, 2, 3))


def test_a_tenth_of_the_entries_is_about_a_tenth_of_the_bytes_at_the_border(tmp_path, deploy_in):
    def sent(name: str, method: str) -> int:
        (tmp_path / name).mkdir()
        deployment = deploy_in(tmp_path / name, method, model="mlp(200)", evaluate_every=100)
        deployment.serve()
        return bytes_up(deployment)

    plain = sent("plain", "fedavg")
    assert sent("sparse", "fedavg+topk(0.1)") / plain == pytest.approx(0.13, abs=0.02)  # and a bit for every entry
    assert sent("both", "fedavg+topk(0.1)+quantize(8)") / plain == pytest.approx(0.056, abs=0.02)


def test_dp_at_sites_draws_its_noise_from_the_operating_system(tmp_path, deploy_in):
    vectors, summaries = [], []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        deployment = deploy_in(tmp_path / name, "scaffold+dp(noise=1, clip=0.5)", rounds=2)
        result = deployment.serve()
        vectors.append(result.vector)
        summaries.append(result.summary["privacy"])
        assert any("cannot be repeated" in line for line in deployment.log)
        assert {kind for _, kind in deployment.kinds()} <= {"joined"}, deployment.events()
    assert not torch.equal(*vectors)
    assert summaries[0]["seeded"] is False
    assert summaries[0]["epsilon"] == summaries[1]["epsilon"] > 0


def test_a_site_that_does_not_clip_is_clipped_by_the_server(deploy):
    deployment = deploy("fedavg+dp(noise=0, clip=0.01)", rounds=1, norm=1e9)

    def loud(reply):
        (name,) = [name for name in reply.arrays if name.endswith("values")]
        return replace(reply, arrays={**reply.arrays, name: reply.arrays[name] * 1e4})

    deployment.change_reply(100, 0, loud)
    result = deployment.serve()
    moved = (result.vector - result.setup.runtime.initial).double().norm().item()
    assert 0 < moved <= 0.01 * 1.0001


def test_an_update_that_is_not_packed_leaves_out_its_site(deploy):
    deployment = deploy("fedavg+topk(0.01)", rounds=1)

    def lie(reply):
        (name,) = [name for name in reply.arrays if name.endswith("index")]
        return replace(reply, arrays={**reply.arrays, name: reply.arrays[name].flip(0)})

    deployment.change_reply(100, 0, lie)
    deployment.serve()
    assert deployment.kinds(0) == [(0, "malformed")]
