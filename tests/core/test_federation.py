"""Who holds what: training rows, test slices, validation and proxy data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest


def rows_of(federation):
    return [federation.rows(client) for client in range(federation.clients)]


def test_every_training_row_is_dealt_once():
    federation = ud.federate("digits", "dirichlet(0.3)", 10)
    rows = np.concatenate(rows_of(federation))
    assert len(np.unique(rows)) == len(rows) == len(federation.y) == federation.total


def test_the_federation_depends_on_its_seed_alone():
    one, again, other = (ud.federate("digits", "dirichlet(0.3)", 10, seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert torch.equal(one.test_y, other.test_y)  # the split into training and test data is fixed


def test_a_clients_test_slice_follows_its_label_shares():
    federation = ud.federate("digits", "pathological(2)", 10)
    slices = [federation.slice(client) for client in range(10)]
    taken = torch.cat([rows for rows, _ in slices])
    assert len(taken.unique()) == len(taken)
    for client, (rows, labels) in enumerate(slices):
        assert torch.equal(labels, federation.test_y[rows])
        assert set(labels.tolist()) <= set(np.flatnonzero(federation.counts(client)).tolist())
        assert abs(len(rows) / len(federation.test_y) - len(federation.rows(client)) / len(federation.y)) < 0.02


def test_validation_is_carved_out_of_the_training_part_before_anything_else_sees_it():
    plain = ud.federate("digits", "dirichlet(0.3)", 10)
    held = ud.federate("digits", "dirichlet(0.3)", 10, validation=0.2)
    validation = set(held.validation_rows().tolist())
    for client in range(10):
        own, kept = set(plain.rows(client).tolist()), set(held.rows(client).tolist())
        assert kept < own
        assert own - kept <= validation
        assert abs(len(own - kept) / len(own) - 0.2) < 0.5 / len(own) + 1e-9
        assert len(kept) == held.sizes[client]
    assert sum(map(len, rows_of(held))) + len(validation) == len(held.y)
    x, y = held.evaluation_set("validation")
    assert len(x) == len(y) == len(validation)
    assert torch.equal(plain.slice(3)[0], held.slice(3)[0])


def test_a_proxy_set_is_in_no_clients_hands():
    federation = ud.federate("digits", "dirichlet(0.3)", 10, proxy=0.1)
    proxy = set(federation.proxy_rows.tolist())
    assert len(proxy) == round(0.1 * len(federation.y))
    assert not any(proxy & set(rows.tolist()) for rows in rows_of(federation))
    assert ud.federate("digits", "dirichlet(0.3)", 10).proxy() is None


def test_noise_changes_training_labels_and_leaves_test_labels_and_slices_clean():
    clean = ud.federate("digits", "dirichlet(0.3)", 10)
    noisy = ud.federate("digits", "dirichlet(0.3)", 10, noise="symmetric(0.3)")
    wrong = (noisy.y != noisy.clean_y).double().mean().item()
    assert wrong == pytest.approx(0.3, abs=0.05)
    assert torch.equal(noisy.test_y, clean.test_y)
    assert torch.equal(noisy.clean_y, clean.y)


def test_permuted_labels_are_permuted_in_the_slice_too():
    federation = ud.federate("digits", "iid", 10, noise="permute(0.5)")
    assert len(federation.permutations) == 5
    client = next(iter(federation.permutations))
    rows, labels = federation.slice(client)
    assert not torch.equal(labels, federation.test_y[rows])
    assert torch.equal(federation.evaluation_set("global")[1], federation.test_y)


def test_resample_has_any_number_of_clients_and_slices_by_label_share():
    federation = ud.federate("digits", "resample(30)", 5000)
    assert federation.clients == 5000
    assert len(federation.rows(4321)) == 30
    rows, labels = federation.slice(4321)
    assert len(rows) >= 20
    assert set(labels.tolist()) <= set(federation.train_labels(4321).tolist())


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"clients": 0}, "at least one client"),
        ({"clients": 100_000}, "resample"),
        ({"partition": "dirichlet(0)"}, "dirichlet"),
        ({"partition": "dirichlett(0.1)"}, "did you mean dirichlet"),
        ({"data": "digitz"}, "did you mean digits"),
        ({"noise": "symetric(0.1)"}, "did you mean symmetric"),
        ({"noise": "symmetric(2)"}, "symmetric"),
        ({"validation": 1.0}, "validation"),
        ({"proxy": -0.1}, "proxy"),
        ({"data": "/nowhere/at/all.npz"}, "nowhere"),
    ],
    ids=str,
)
def test_what_cannot_be_dealt_is_one_sentence(given, word):
    with pytest.raises(BadRequest) as caught:
        ud.federate(**given)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def own(n=6, labels=None, x=None):
    x = torch.randn(n, 4) if x is None else x
    return x, torch.arange(n) % 3 if labels is None else labels


def test_own_clients_without_a_test_part_give_a_share_of_their_data_and_that_is_said():
    federation = ud.Federation.from_clients([own(10), own(20)], test_share=0.2)
    assert federation.sizes.tolist() == [8, 16]
    assert [len(federation.slice(client)[0]) for client in range(2)] == [2, 4]
    assert federation.record["test_share"] == 0.2
    assert federation.classes == 3


def test_own_clients_without_any_test_data_are_refused_before_a_run_would_evaluate_nothing():
    with pytest.raises(BadRequest, match=r"no client has a test part and test_share is 0.*test_share such as 0\.2"):
        ud.Federation.from_clients([own(10), own(20)], test_share=0)
    assert ud.Federation.from_clients([own(10), (*own(20), *own(5))], test_share=0).sizes.tolist() == [10, 20]


def test_own_clients_may_be_datasets_of_pairs():
    x, y = own(10)
    pairs = torch.utils.data.TensorDataset(x, y)
    assert ud.Federation.from_clients([pairs, own(10)]).clients == 2


@pytest.mark.parametrize(
    ("clients", "word"),
    [
        ([], "at least one client"),
        ([own(0)], "no sample"),
        ([own(6), own(6, x=torch.randn(6, 5))], "client 1"),
        ([own(6, x=torch.randn(5, 4))], "5 samples but 6 labels"),
        ([own(6, labels=torch.rand(6))], "number the classes"),
        ([own(6, labels=torch.arange(6) - 1)], "labels must lie"),
        ([own(6, x=torch.full((6, 4), torch.nan))], "NaN"),
    ],
)
def test_own_clients_that_cannot_be_used_are_one_sentence(clients, word):
    with pytest.raises(BadRequest, match=word):
        ud.Federation.from_clients(clients)


def test_labels_outside_the_named_classes_are_refused():
    with pytest.raises(BadRequest, match="0…1"):
        ud.Federation.from_clients([own(6)], labels=["a", "b"])


def test_objects_of_ours_are_written_as_text():
    federation = ud.federate("digits", ud.partition.dirichlet(0.1), 5, noise=ud.noise.symmetric(0.2))
    assert federation.spec is not None
    again = ud.federate(federation.spec["data"], federation.spec["partition"], 5, noise=federation.spec["noise"])
    assert again.fingerprint == federation.fingerprint


def test_validation_data_do_not_cost_a_look_at_every_client(monkeypatch):
    """Law: a hundred times as many registered clients, and not one more of them is read."""
    from undrift.federation.partition.resample import LazyShards

    read, shard = list[int](), LazyShards.__getitem__
    monkeypatch.setattr(LazyShards, "__getitem__", lambda self, client: read.append(client) or shard(self, client))
    counts = []
    for clients in (2_000, 200_000):
        read.clear()
        federation = ud.federate("digits", "resample(20)", clients, validation=0.1)
        assert federation.sizes.shape == (clients,)
        assert set(federation.sizes.tolist()) == {18}
        for _ in range(3):
            x, y = federation.evaluation_set("validation")
        counts.append(len(read))
        assert len(x) == len(y) == len(federation.evaluation_labels("validation"))
    assert counts[0] == counts[1] == len(set(read)) == 1000


def test_sizes_with_validation_are_those_of_the_rows():
    shards = [np.arange(n) for n in (1, 2, 5, 15, 25, 30, 7)]
    data = torch.zeros(40, 3), torch.zeros(40, dtype=torch.int64)
    for share in (0.1, 0.3, 0.5, 0.99):
        federation = ud.Federation("own", data, data, shards, ["a", "b"], validation=share)
        assert federation.sizes.tolist() == [len(federation.rows(client)) for client in range(len(shards))]
        assert [len(federation.rows(k)) + len(federation._split(k)[1]) for k in range(7)] == [len(s) for s in shards]
        x, _y = federation.evaluation_set("validation", (2, 4))
        assert torch.equal(x, federation.evaluation_set("validation")[0][2:4])


def test_the_inputs_can_be_standardised_with_other_constants():
    plain, other = ud.federate("digits", "iid"), ud.federate("digits", "iid", standardise="0.25/0.5")
    (mean,), (deviation,) = plain.scale
    raw = plain.x.double() * deviation + mean
    assert torch.allclose(other.x.double(), (raw - 0.25) / 0.5, atol=1e-5)
    assert torch.allclose(other.test_x.double(), (plain.test_x.double() * deviation + mean - 0.25) / 0.5, atol=1e-5)
    assert other.scale == ((0.25,), (0.5,))
    assert other.fingerprint != plain.fingerprint
    result = ud.run("fedavg", data="digits", rounds=1, epochs=1, clients=4, standardise="0.25/0.5", out=False)
    again = ud.run("fedavg", ud.federate("digits", clients=4, standardise="0.25/0.5"), rounds=1, epochs=1, out=False)
    assert result.summary["model_sha256"] == again.summary["model_sha256"]


@pytest.mark.parametrize("given", ["0.5", "0.5/0", "0.1,0.2/1", "a/b", "nan/1", "0.1/1/1", "/", 3])
def test_constants_that_cannot_be_are_refused(given):
    with pytest.raises(BadRequest, match="standardise must be mean/deviation"):
        ud.federate("digits", "iid", standardise=given)


def test_one_number_stands_for_all_channels():
    from undrift.data.dataset import DataSet, with_constants

    x, y = np.zeros((2, 3, 4, 4), dtype=np.uint8), np.array([0, 1])
    source = DataSet("own", x, y, x, y, ("a", "b"), (0.0,) * 3, (1.0,) * 3, "own", "")
    assert with_constants(source, "0.5/0.1,0.2,0.3").mean == (0.5, 0.5, 0.5)
    assert with_constants(source, "0.49,0.48,0.45/0.20,0.20,0.20").std == (0.2, 0.2, 0.2)
