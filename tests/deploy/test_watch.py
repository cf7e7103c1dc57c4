"""The live page of a deployment: every site with its state and last sentence."""

from __future__ import annotations

from undrift.live import deployment_view
from undrift.live.deployment_view import site_state
from undrift.live.records import read_run


def sites_of(run) -> dict[str, list]:
    """The cells of the table of sites, by site."""
    row = read_run("run", run, False)
    assert row.deployment
    (found,) = [content for name, content, *_ in deployment_view.sections(row) if name == "sites"]
    return {key: line for key, line in zip(found.keys, found.rows[1:], strict=True)}


def test_a_site_that_answers_and_one_that_is_late_are_told_apart(deploy):
    deployment = deploy("fedavg", evaluate_every=5)
    deployment.change_reply(99, 4, lambda reply: None)  # oslo's node
    deployment.serve()
    cells = sites_of(deployment.run)
    assert list(cells) == ["berlin", "oslo", "turin"]
    states = {site: line[1][1] for site, line in cells.items()}
    assert "answered" in states["berlin"]
    assert cells["oslo"][2].startswith("round 4: late: oslo did not reply")
    assert int(cells["oslo"][5]) == 1
    assert cells["turin"][2] == "—"


def test_the_page_has_the_metrics_of_each_site(deploy):
    deployment = deploy("fedavg")
    deployment.serve()
    row = read_run("run", deployment.run, False)
    sections = {section[0]: section[1] for section in deployment_view.sections(row)}
    figures = dict(sections["metrics"])
    assert [line["name"] for line in figures["stage-l1"].data] == ["berlin", "oslo", "turin"]


def test_states_of_a_site():
    awaited = {"sites": ["oslo"], "until": 0.0}
    assert site_state("oslo", None, awaited) == "awaited"
    assert site_state("oslo", None, None) == "answered"
    assert site_state("oslo", "", None) == "absent"
    assert [site_state("oslo", kind, None) for kind in ("late", "absent", "broken", "malformed")] == [
        "late",
        "absent",
        "refused",
        "left out",
    ]
