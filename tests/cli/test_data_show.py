"""`undrift data show`: numbers in the terminal, a page, JSON, for clients, wrong labels and domains."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest


def test_numbers_in_the_terminal_and_a_page_beside_them(undrift):
    result = undrift("data", "show", "digits", "dirichlet(0.1)", "--clients", "30")
    assert result.code == 0
    for word in ("sizes", "Gini", "classes per client", "mean Hellinger distance", "wrong labels 0.0 %", "6 more"):
        assert word in result.out
    page = re.search(r"page: (runs/data/.*\.html)", result.out).group(1)
    assert page == "runs/data/digits_dirichlet_0.1_30_clients.html"
    text = Path(page).read_text()
    assert text.count("<figure>") == 30
    assert "https://" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # no network
    assert undrift("runs", "--json").json == []  # a page is not a run


def test_json_alone_writes_nothing(undrift, tmp_path):
    found = undrift("data", "show", "digits", "pathological(2)", "--clients", "10", "--json").json
    assert not (tmp_path / "runs").exists()
    assert found["sizes"] == np.sum(found["class_counts"], axis=1).tolist()
    assert max(found["classes_per_client"]) <= 2
    assert found["noise_rate"] == [0.0] * 10
    assert found["permuted"] == []
    assert found["domain"] is None


def test_noise_and_domains_are_in_the_numbers(undrift):
    arguments = ("data", "show", "digits", "iid", "--clients", "4", "--noise", "symmetric(0.2)+permute(0.5)", "--domains",
             "identity+inverted")  # fmt: skip
    found = undrift(*arguments, "--json").json
    assert found["domain"] == ["identity", "inverted"] * 2
    assert len(found["permuted"]) == 2
    assert np.mean(found["noise_rate"]) == pytest.approx(0.2, abs=0.01)
    result = undrift(*arguments)
    for word in ("wrong labels 20", "2 clients have permuted class labels", "inverted (2 clients)"):
        assert word in result.out


def test_hellinger_and_gini_by_hand():
    from undrift.report.label_distribution import gini, mean_hellinger

    assert mean_hellinger(np.array([[1.0, 0.0], [0.0, 1.0]])) == 1
    assert mean_hellinger(np.array([[0.5, 0.5]] * 3)) == pytest.approx(0, abs=1e-7)
    # √(1 − √½·√1) = √(1 − 0.7071)
    assert mean_hellinger(np.array([[0.5, 0.5], [1.0, 0.0]])) == pytest.approx(0.5412, abs=1e-4)
    assert gini(np.array([5, 5, 5])) == 0
    assert gini(np.array([0, 0, 0, 12])) == 0.75  # 1 − 1/N
    assert gini(np.array([1, 3])) == 0.25


def test_the_default_number_of_clients_comes_from_the_data(undrift, tmp_path):
    np.savez(
        tmp_path / "sites.npz",
        x=np.random.default_rng(0).random((60, 3)),
        y=np.arange(60) % 2,
        client=np.arange(60) % 3,
    )
    result = undrift("data", "show", "sites.npz", "natural")
    assert result.code == 0
    assert "page: runs/data/sites_natural_3_clients.html" in result.out
    assert len(undrift("data", "show", "digits", "--json").json["sizes"]) == 20
    by_domain = undrift("data", "show", "digits", "by_domain", "--domains", "identity+edge+grey", "--json").json
    assert by_domain["domain"] == ["identity", "edge", "grey"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show", "digits", "iid", "--domains", "invertd"), "did you mean inverted"),
        (("show", "digits", "iid", "--noise", "symmetric(1.5)"), "between 0 and 1, not 1.5"),
        (("show", "digits", "natural"), "these have none"),
        (("show", "digits", "iid", "--clients", "many"), "--clients must be a whole number"),
        (("show", "digits", "pathological(11)"), "more classes per client than the 10"),
        (("show", "digitz"), "did you mean digits"),
    ],
    ids=str,
)
def test_a_bad_request_is_one_sentence(undrift, arguments, sentence):
    result = undrift("data", *arguments)
    assert result.code == 2
    assert sentence in result.sentence
