"""Every environment on Fashion-MNIST with 100 clients, as a page in a real browser: one mark per non-zero cell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from undrift.cli import command

pytestmark = pytest.mark.browser
COUNTS = "class_counts([5, 0, 30, 1, 0, 0, 12, 7, 2, 1])"
DOMAINS = "identity+grey+inverted+blurred+rotated+noisy+edge"
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
    ("iid", None, DOMAINS),
    ("by_domain", None, DOMAINS),
    ("dirichlet(0.1)", "symmetric(0.2)", "identity+inverted"),
]  # fmt: skip


# A separate process builds the pages, so that the browser shows one while the next is built.
BUILDER = """
import json, sys
from undrift.cli import command
for line in sys.stdin:
    if command(json.loads(line)):
        sys.exit(1)
    print("written", flush=True)  # the JSON comes before the page
"""


class Builder:
    """Pages of environments, in the order of the requests, and what `undrift data show --json` printed for each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requested, self.printed = folder, list[tuple](), dict[tuple, dict]()
        self.process = subprocess.Popen(
            [sys.executable, "-c", BUILDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def request(self, environment: tuple) -> None:
        partition, noise, domains = environment
        page = str(self.page(environment))
        arguments = ["data", "show", "fashion-mnist", partition, "--clients", "100", "--json", "--html", page]
        arguments += ["--noise", noise] if noise else []
        arguments += ["--domains", domains] if domains else []
        self.requested.append(environment)
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def page(self, environment: tuple) -> Path:
        return self.folder / f"{ENVIRONMENTS.index(environment)}.html"

    def json(self, environment: tuple) -> dict:
        while environment not in self.printed:
            found = json.loads(self.process.stdout.readline())
            assert self.process.stdout.readline() == "written\n"
            self.printed[self.requested[len(self.printed)]] = found
        return self.printed[environment]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def builder(request, tmp_path_factory):
    if not os.environ.get("UNDRIFT_DATA"):
        pytest.skip("UNDRIFT_DATA names no folder with the real data sets")
    with contextlib.closing(Builder(tmp_path_factory.mktemp("pages"))) as builder:
        for item in request.session.items:
            if item.parent is request.node and (spec := getattr(item, "callspec", None)):
                builder.request((spec.params["partition"], spec.params["noise"], spec.params["domains"]))
        yield builder


def assert_drawn(chrome, page, found):
    """Assert that the page has no error, and as many marks as the client × class matrix has non-zero cells."""
    cells = int((np.array(found["class_counts"]) > 0).sum())
    chrome.open(page)
    chrome.until(f"document.querySelectorAll('#labels path.point').length >= {cells}")
    assert chrome.errors == []
    assert chrome.value("document.querySelectorAll('#labels path.point').length") == cells
    assert chrome.value("document.querySelectorAll('#sizes path').length") >= len(found["sizes"])
    assert chrome.value("document.querySelectorAll('#samples figure').length") == len(found["sizes"])
    assert chrome.value("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert chrome.value("document.querySelectorAll('#noise').length") == any(found["noise_rate"] or [])


@pytest.mark.parametrize(("partition", "noise", "domains"), ENVIRONMENTS, ids=str)
def test_the_page_of_an_environment(partition, noise, domains, builder, chrome):
    found = builder.json((partition, noise, domains))
    assert len(found["sizes"]) == len(found["class_counts"]) == len(found["noise_rate"]) == 100
    assert found["clients"] == 100
    assert found["sizes"] == np.sum(found["class_counts"], axis=1).tolist()
    assert 0 <= found["gini"] < 1
    assert 0 <= found["hellinger"] <= 1
    assert bool(found["permuted"]) == (noise is not None and "permute" in noise)
    assert (found["domain"] is None) == (domains is None)
    assert_drawn(chrome, builder.page((partition, noise, domains)), found)


def test_the_page_of_data_with_their_own_clients(chrome, tmp_path, capsys):
    draw = np.random.default_rng(0)
    owners = draw.integers(0, 100, 6000)
    np.savez(
        tmp_path / "sites.npz",
        x=draw.integers(0, 256, (6000, 28, 28), dtype=np.uint8),
        y=draw.integers(0, 10, 6000),
        client=owners,
        x_test=np.zeros((10, 28, 28), dtype=np.uint8),
        y_test=np.arange(10),
    )
    page = tmp_path / "page.html"
    assert command(["data", "show", str(tmp_path / "sites.npz"), "natural", "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == np.bincount(owners).tolist()
    assert_drawn(chrome, page, found)
