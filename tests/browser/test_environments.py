"""Every environment on Fashion-MNIST with 100 clients, as a page in a real browser: a mark per non-zero cell."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from undrift.cli import command

pytestmark = pytest.mark.browser
COUNTS = "class_counts([5, 0, 30, 1, 0, 0, 12, 7, 2, 1])"
LOOKS = "identity+grey+inverted+blurred+rotated+noisy+edge"
ENVIRONMENTS = [
    *(
        (partition, None, None)
        for partition in (
            "iid", "iid(stratified=true)", "dirichlet(0.1)", "dirichlet(0.1, balance=false)", "dirichlet(0.1, recipe=feddf)",
            "pathological(2)", "pathological(2, form=fliu)", "pathological(2, form=fliu, balanced=false)", "shards(2)",
            "label_skew(1.0)", "quantity_skew(1.0)", "label_quantity_skew(1.0)", "label_quantity_skew(1.0, form=sinkhorn)",
            "lognormal(0.9, 0.3)", "resample(50, alpha=0.3)", COUNTS,
        )
    ),
    *(
        ("dirichlet(0.3)", noise, None)
        for noise in (
            "symmetric(0.2)", "symmetric(0.2, when=before)", "pair(0.3, unit=client)", "constant(0.4, 0)", "permute(0.3)",
            "symmetric(0.2)+permute(0.3)",
        )
    ),
    ("iid", None, LOOKS),
    ("by_domain", None, LOOKS),
    ("dirichlet(0.1)", "symmetric(0.2)", "identity+inverted"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def here():
    if not os.environ.get("UNDRIFT_DATA"):
        pytest.skip("UNDRIFT_DATA names no folder with the real data sets")


def shown(data, partition, noise, domains, page, capsys, clients=("--clients", "100")):
    """What `undrift data show --json` prints, having written the page."""
    words = ["data", "show", data, partition, *clients, "--json", "--html", str(page)]
    words += ["--noise", noise] if noise else []
    words += ["--domains", domains] if domains else []
    assert command(words) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def drawn(chrome, page, found):
    """The page without an error, with as many marks as the client × class matrix has non-zero cells."""
    cells = int((np.array(found["class_counts"]) > 0).sum())
    chrome.open(page)
    chrome.until(f"document.querySelectorAll('#holdings path.point').length >= {cells}")
    assert chrome.said == []
    assert chrome.value("document.querySelectorAll('#holdings path.point').length") == cells
    assert chrome.value("document.querySelectorAll('#sizes path').length") >= len(found["sizes"])
    assert chrome.value("document.querySelectorAll('#samples figure').length") == len(found["sizes"])
    assert chrome.value("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert chrome.value("document.querySelectorAll('#noise').length") == any(found["noise_rate"])


@pytest.mark.parametrize(("partition", "noise", "domains"), ENVIRONMENTS, ids=str)
def test_the_page_of_an_environment(partition, noise, domains, chrome, tmp_path, capsys):
    found = shown("fashion-mnist", partition, noise, domains, tmp_path / "page.html", capsys)
    assert len(found["sizes"]) == len(found["class_counts"]) == len(found["noise_rate"]) == 100
    assert found["clients"] == 100
    assert found["sizes"] == np.sum(found["class_counts"], axis=1).tolist()
    assert 0 <= found["gini"] < 1
    assert 0 <= found["hellinger"] <= 1
    assert bool(found["permuted"]) == (noise is not None and "permute" in noise)
    assert (found["domain"] is None) == (domains is None)
    drawn(chrome, tmp_path / "page.html", found)


def test_the_page_of_clients_that_the_data_name(chrome, tmp_path, capsys):
    from undrift.data import load

    data, owners = load("fashion-mnist"), np.random.default_rng(0).integers(0, 100, 6000)
    np.savez(tmp_path / "sites.npz", x_train=data.x_train[:6000], y_train=data.y_train[:6000], client=owners,
             x_test=data.x_test[:500], y_test=data.y_test[:500])  # fmt: skip
    page = tmp_path / "page.html"
    found = shown(str(tmp_path / "sites.npz"), "natural", None, None, page, capsys, clients=())
    assert found["sizes"] == np.bincount(owners).tolist()
    drawn(chrome, page, found)
