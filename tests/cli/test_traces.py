"""`undrift show RUN --traces`: the notes of the parts, in the terminal and as a page."""

from __future__ import annotations

import re
from pathlib import Path

import undrift as ud
from undrift.testing import tiny


def test_traces_are_sparklines_in_the_terminal_and_figures_on_a_page(undrift, small):
    method = "flood(T=1)+fedbss(T1=0)+fliu@bound"
    assert undrift("run", *small, "--method", method, "--out", "seen", "--quiet", "--noise", "symmetric(0.2)").code == 0
    result = undrift("show", "seen", "--traces", "--html", "page.html")
    assert result.code == 0, result.err
    for title in ("λ:", "τ:", "share of samples below τ", "confidence scores", "S_mid:", "|V|/n", "biased samples by class",
                  "loss against uncertainty", "γ:", "bounds u and l", "η:", "weight in the mean", "training loss",
                  "size", "label entropy", "label Hellinger distance", "noise rate"):  # fmt: skip
        assert re.search(rf"{re.escape(title)}.*", result.out), title
    page = Path("page.html").read_text()
    for name in ("sampling-flood-scores", "sampling-fedbss-survey", "personalize-fliu-gamma", "weighting-bound-u",
                 "weighting-bound-weight_against"):  # fmt: skip
        assert f"id='{name}'" in page
    assert "traces" not in undrift("show", "seen").out


def test_one_call_in_python_gives_the_same(tmp_path):
    federation = tiny()
    result = ud.run("fliu", federation, model=federation.model, rounds=2, out=False)
    found = result.traces()
    assert "γ: share of the client's own model" in str(found)
    assert list(found["personalize.fliu.gamma"].values) == [0, 1]
    found.write(tmp_path / "page.html")
    assert "id='personalize-fliu-gamma'" in (tmp_path / "page.html").read_text()


def test_a_run_whose_federation_cannot_be_rebuilt_is_shown_without_it_and_says_why(undrift):
    federation = tiny()
    ud.run("fedavg", federation, model=federation.model, rounds=2, out="own")
    result = undrift("show", "own", "--traces")
    assert result.code == 0, result.err
    assert "not compared with the clients' data" in result.err
    assert "weight in the mean" in result.out
    assert "label entropy" not in result.out
