"""Feature skew: client k's training images and its test slice get transform k mod D."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.data import DataSet
from undrift.experiment.run_toml import read_toml
from undrift.federation.environment import domains, feature_skew

DOMAINS = "identity+inverted+rotated(90)"


def as_images(federation, x):
    """Back to 0…1, channels first."""
    mean, std = (torch.tensor(values) for values in federation.scale)
    return (x * std + mean).permute(0, 3, 1, 2)


def same(a, b):
    return torch.allclose(a, b, atol=1e-5)


@pytest.fixture(scope="module")
def plain():
    return ud.federate("digits", "dirichlet(0.3)", 7, noise="symmetric(0.2)")


@pytest.fixture(scope="module")
def skewed():
    return ud.federate("digits", "dirichlet(0.3)", 7, noise="symmetric(0.2)", domains=DOMAINS)


def expected(client, images):
    return (images, 1 - images, images.rot90(1, (2, 3)))[client % 3]


def test_every_clients_images_have_its_transform_and_nothing_else_changes(plain, skewed):
    assert torch.equal(plain.y, skewed.y)
    assert torch.equal(plain.test_y, skewed.test_y)
    for client in range(7):
        assert np.array_equal(plain.rows(client), skewed.rows(client))
        before, after = (as_images(f, f.train(client)[0]) for f in (plain, skewed))
        assert same(after, expected(client, before))
    assert not same(plain.x, skewed.x)


def test_a_test_slice_has_the_transform_of_its_clients_training_data(plain, skewed):
    for client in range(7):
        rows = plain.slice(client)[0]
        assert torch.equal(rows, skewed.slice(client)[0])
        before, after = (as_images(f, f.test_x[rows]) for f in (plain, skewed))
        assert same(after, expected(client, before))
        assert set(rows.tolist()) <= set(list(skewed.domains.values())[client % 3].tolist())
    assert list(skewed.domains) == ["identity", "inverted", "rotated(degrees=90)"]
    assert sorted(np.concatenate(list(skewed.domains.values()))) == list(range(360))
    assert skewed.record["domain"] == [0, 1, 2, 0, 1, 2, 0]


def test_by_domain_deals_domains_with_equal_shares_of_every_class():
    federation = ud.federate("digits", "by_domain", domains=DOMAINS)
    assert federation.clients == 3
    counts = np.array([federation.counts(client) for client in range(3)])
    assert (counts.max(0) - counts.min(0) <= 1).all()
    for client in range(3):
        assert np.array_equal(federation.slice(client)[0].numpy(), list(federation.domains.values())[client])
    six = ud.federate("digits", "by_domain", 6, domains=DOMAINS)
    assert torch.equal(six.slice(1)[0], six.slice(4)[0])  # two clients of one domain share its test part


def test_pixel_noise_depends_on_the_seed_alone():
    one, again, other = (ud.federate("digits", "iid", 4, domains="noisy+identity", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.x, again.x)
    assert one.fingerprint == again.fingerprint != other.fingerprint
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        assert torch.equal(one.x, ud.federate("digits", "iid", 4, domains="noisy+identity", seed=0).x)
    finally:
        torch.set_num_threads(threads)


def test_samples_of_no_client_are_split_evenly():
    labels = np.repeat([0, 1, 2], [30, 10, 5])
    given = feature_skew.evenly(labels, 3, np.random.default_rng(0))
    for label, size in enumerate((30, 10, 5)):
        counts = np.bincount(given[labels == label], minlength=3)
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == size
    federation = ud.federate("digits", "iid", 4, domains=DOMAINS, proxy=0.1)
    proxy, plain = federation.proxy()[0], ud.federate("digits", "iid", 4, proxy=0.1).proxy()[0]
    assert 0.2 < np.mean([same(a, b) for a, b in zip(proxy, plain, strict=True)]) < 0.5


def test_objects_lists_and_text_mean_the_same_and_are_recorded_as_text(tmp_path):
    forms = (
        DOMAINS,
        ["identity", "inverted", "rotated(90)"],
        [domains.identity(), domains.inverted(), domains.rotated(90)],
    )
    prints = {ud.federate("digits", "iid", 5, domains=form).fingerprint for form in forms}
    assert len(prints) == 1
    run = ud.run("fedavg", rounds=1, clients=5, model="mlp(8)", domains=forms[2], noise="symmetric(0.1)+permute(0.4)",
                 out=tmp_path / "run")  # fmt: skip
    table = read_toml(tmp_path / "run" / "run.toml")
    assert table["domains"] == "identity()+inverted()+rotated(degrees=90)"
    assert table["noise"] == "symmetric(0.1)+permute(0.4)"
    again = ud.run(parts=table.pop("parts"), **table, out=False)
    assert again.summary["model_sha256"] == run.summary["model_sha256"]
    assert ud.load(tmp_path / "run").summary["model_sha256"] == run.summary["model_sha256"]


def test_noises_compose_one_after_another():
    both = ud.federate("digits", "iid", 10, noise="symmetric(0.2)+permute(0.3)")
    first = ud.federate("digits", "iid", 10, noise="symmetric(0.2)")
    assert torch.equal(both.y, first.y)
    assert len(both.permutations) == 3
    twice = ud.federate("digits", "iid", 10, noise="symmetric(0.2, when=before)+constant(0.5, 3)")
    wrong = (twice.y != twice.clean_y).double().mean().item()
    assert 0.5 < wrong < 0.6  # 1 − 0.8 · 0.5 = 0.6, less those that were 3 already


def bright(images, generator):
    return images * 0.5


def test_a_users_transform_is_a_function():
    federation = ud.federate("digits", "iid", 4, domains=["identity", bright])
    assert list(federation.domains) == ["identity", "bright"]
    assert federation.spec is None
    assert as_images(federation, federation.train(1)[0]).max() == pytest.approx(0.5 * 240 / 255, abs=1e-4)


def table_of(x):
    y = np.arange(len(x)) % 2
    return DataSet("mine", x, y, x[:4], y[:4], ("a", "b"), (0.0,) * x.shape[1], (1.0,) * x.shape[1], "own", "here")


FLAT = table_of(np.zeros((20, 5), dtype=np.float32))
WIDE = table_of(np.linspace(-1, 1, 20 * 64, dtype=np.float32).reshape(20, 1, 8, 8))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"domains": "invertd"}, "unknown domain 'invertd'; did you mean inverted"),
        ({"domains": "identity+identity"}, "domains name identity 2 times"),
        ({"domains": "identity@inverted"}, r"join with \+"),
        ({"domains": "blurred(0)"}, "sigma of blurred"),
        ({"domains": [3]}, "a domain is a name such as inverted, or a function"),
        ({"domains": DOMAINS, "clients": 2}, "2 clients cannot show 3 domains; ask for clients=3"),
        ({"domains": DOMAINS, "partition": "by_domain", "clients": 2}, "2 clients cannot cover 3 domains"),
        ({"domains": DOMAINS, "partition": "resample(5)"}, "resample draws with replacement"),
        ({"domains": DOMAINS, "data": FLAT}, "mine is a table of 5 columns"),
        ({"domains": DOMAINS, "data": WIDE}, "has values from -1 to 1; scale them"),
        ({"domains": [lambda images, generator: images[:, :, :4]]}, "must return finite images of the shape"),
        ({"domains": [lambda images: images]}, "must return finite images .* it raised TypeError"),
        ({"noise": "permute(0.1)+permute(0.2)"}, "permute twice"),
        ({"noise": "symmetric(0.1)", "partition": "resample(5)"}, "use when=before"),
        ({"partition": "by_domain"}, "these have none; load pacs32, say, or name --domains"),
    ],
    ids=lambda value: value if isinstance(value, str) else "given",
)
def test_refusals_are_one_sentence(given, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.federate(**{"data": "digits", "partition": "iid", "clients": 4} | given)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_data_with_their_own_domains_refuse_synthetic_ones():
    with pytest.raises(BadRequest, match="pacs32 has 4 domains of its own; leave --domains out"):
        ud.federate("pacs32", "iid", 4, domains=DOMAINS)
