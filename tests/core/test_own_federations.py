"""Federations of a user's own data: an .npz with a client column, a folder of images per client, per-client datasets."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
import torch
from PIL import Image

import undrift as ud
from undrift.core.errors import BadRequest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))


def saved(path, **more):
    draw = np.random.default_rng(0)
    np.savez(
        path, x=draw.normal(size=(60, 4)), y=np.arange(60) % 3, client=np.repeat(["b", "a", "c"], [10, 20, 30]), **more
    )
    return str(path)


def test_an_npz_with_a_client_column_is_a_federation_of_these_clients(tmp_path):
    federation = ud.federate(saved(tmp_path / "sites.npz"), "natural")
    assert federation.clients == 3
    assert federation.sizes.tolist() == [16, 8, 24]  # a, b, c without the fifth that became their test part
    assert [len(federation.slice(client)[0]) for client in range(3)] == [4, 2, 6]
    assert federation.record["test_share"] == 0.2
    result = ud.run("fedavg", federation, rounds=1, out=False)
    assert any("has no test part: 20% of every client's samples" in said for said in result.setup.notices)


def test_a_test_part_with_owners_gives_each_its_own(tmp_path):
    path = saved(
        tmp_path / "m.npz", x_test=np.zeros((5, 4)), y_test=np.arange(5) % 3, client_test=np.array(list("abcca"))
    )
    federation = ud.federate(path, "natural", 3)
    assert federation.total == 60
    assert [federation.slice(client)[0].tolist() for client in range(3)] == [[0, 4], [1], [2, 3]]


def test_owners_and_domains_do_not_get_mixed_up(tmp_path):
    path = saved(tmp_path / "m.npz", domain=np.arange(60) % 2)
    assert ud.federate(path, "natural").clients == 3
    assert ud.federate(path, "by_domain").clients == 2
    federation = ud.federate(path, "by_domain", 4)
    assert list(federation.domains) == ["0", "1"]
    assert sum(map(len, federation.domains.values())) == len(federation.test_y)
    assert federation.record["domain"] == [0, 1, 0, 1]


def test_a_run_on_an_npz_is_repeated_by_its_run_toml(tmp_path):
    path = saved(tmp_path / "m.npz")
    first = ud.run("fedavg", data=path, partition="natural", clients=3, rounds=1, out=tmp_path / "run")
    assert ud.load(tmp_path / "run").summary["model_sha256"] == first.summary["model_sha256"]
    other = ud.federate(path, "natural", test_share=0.5)
    assert other.sizes.tolist() == [10, 5, 15]
    assert other.spec is None  # no option says 0.5, so text cannot repeat it


def test_a_folder_of_images_per_client_is_a_federation(tmp_path):
    for client, count in (("north", 10), ("south", 5)):
        for label, grey in (("cat", 20), ("dog", 200)):
            folder = tmp_path / "sites" / client / label
            folder.mkdir(parents=True)
            for i in range(count):
                Image.new("L", (8, 8), grey + i).save(folder / f"{i}.png")
    federation = ud.federate(tmp_path / "sites", "natural")
    assert federation.labels == ("cat", "dog")
    assert federation.sizes.tolist() == [16, 8]
    assert federation.shape == (1, 8, 8)
    assert ud.run("fedavg", federation, rounds=1, out=False).summary["rounds"] == 1


def test_too_few_samples_to_hold_any_out_is_said(tmp_path):
    np.savez(tmp_path / "m.npz", x=np.zeros((2, 4)), y=np.arange(2), client=np.arange(2))
    with pytest.raises(
        BadRequest, match=r"m has no test part and too few samples \(2\) to hold 20% out; give a test part"
    ):
        ud.federate(str(tmp_path / "m.npz"), "natural")
    with pytest.raises(BadRequest, match=r"0 < test_share < 1, not 1\.5"):
        ud.federate(saved(tmp_path / "n.npz"), "natural", test_share=1.5)


class Pairs(torch.utils.data.Dataset):
    """What users have: a dataset of (image, label), of any length and any sizes."""

    def __init__(self, shapes, labels=None):
        self.shapes, self.labels = shapes, labels or [0] * len(shapes)

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, i):
        return np.zeros(self.shapes[i], dtype=np.float32), self.labels[i]


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (Pairs([]), "client 1 has no sample; leave it out"),
        (Pairs([(1, 8, 8), (1, 9, 8)]), r"client 1 has samples of shape \(1, 8, 8\) and \(1, 9, 8\); bring them to one"),
        (Pairs([(1, 8, 8)] * 2, [0, 1.5]), "number the classes 0, 1, 2"),
        (Pairs([(1, 8, 8)] * 2, [[0, 1], [1, 0]]), r"shape \(2, 2\); number the classes"),
        (Pairs([(1, 8, 8)], ["cat"]), "client 1 has samples that are not numbers"),
        ((torch.zeros(3, 1, 8, 8), torch.zeros(3).long(), torch.zeros(2, 1, 8, 9), torch.zeros(2).long()), "and test samples of"),
        ((torch.zeros(3, 1, 8, 8), torch.zeros(3).long(), torch.zeros(2, 1, 8, 8), torch.zeros(1).long()), "2 samples but 1 labels"),
    ],
)  # fmt: skip
def test_own_datasets_that_cannot_be_used_are_one_sentence(client, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.Federation.from_clients([Pairs([(1, 8, 8)] * 4), client])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [1.0, 1.5, 60.0])
def test_a_proxy_set_as_large_as_the_data_is_refused(share):
    with pytest.raises(BadRequest, match=rf"proxy is a share of the training data, 0 ≤ proxy < 1, not {share}"):
        ud.federate("digits", "iid", 4, proxy=share)


def test_a_proxy_set_that_leaves_too_little_to_deal_is_refused():
    with pytest.raises(
        BadRequest, match="20 clients with at least 10 samples each need 200 samples, but there are 14;"
    ):
        ud.federate("digits", "dirichlet(0.3)", 20, proxy=0.99)


def test_an_empty_slice_is_left_out_of_acc_l_and_counted():
    """200 clients share 360 test samples by their label shares: some get none."""
    federation = ud.federate("digits", "dirichlet(0.1, least=1)", 200)
    empty = [client for client in range(200) if not len(federation.slice(client)[0])]
    assert empty
    chosen = [*empty[:2], next(client for client in range(200) if client not in empty)]
    result = ud.run("fedavg", federation, rounds=1, selection=f"list({chosen})", out=False)
    stage = result.summary["stages"]["L1"]
    assert (stage["clients"], stage["without_slice"]) == (3, 2)


def test_a_repaired_partition_is_said_and_recorded(tmp_path):
    result = ud.run("fedavg", partition="dirichlet(0.01)", clients=40, rounds=1, model="mlp(8)", out=tmp_path / "run")
    dealt = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["about"]["dealt"]
    assert dealt["draws"] == 1000
    assert dealt["repaired"] > 0
    assert list(map(int, dealt["sizes"].split())) == result.setup.federation.sizes.tolist()
    assert any(f"left {dealt['repaired']} clients with too few samples" in said for said in result.setup.notices)
