"""Laws of client-level differential privacy: the bound binds whatever a client does, and the noise is what ε assumes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import undrift as ud
from undrift.contract.context import Replies, Server
from undrift.core.errors import BadRequest
from undrift.core.streams import system_normal
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.methods.published import PUBLISHED
from undrift.methods.upload.covered import joint_norm
from undrift.round.server import ServerRound
from undrift.store.run_store import RunStore
from undrift.testing import QUICK, adapted_network, needs_adapters, run_parts, tiny

CLIENTS = tiny()


def setup_of(method: str, upload: str, **options):
    return prepare(
        from_keywords({**QUICK, "model": CLIENTS.model, "method": method, "upload": upload, **options}), CLIENTS
    )


def window(setup) -> tuple[Server, ud.upload.dp]:
    """The server as dp sees it before round 0."""
    store = RunStore(None, 10**6)
    loop = setup.loop(Inline(setup.runtime, store.states), store)
    state = loop.begin()
    server_round: ServerRound = loop.open_round(state)
    (part,) = setup.method.on("upload")
    return server_round.window(part), part


def replies_of(server: Server, updates, messages=()) -> Replies:
    m = len(updates)
    return Replies(
        ids=list(range(m)), n=[5] * m, vectors=[server.vector + u for u in updates], sent=[server.vector] * m,
        steps=[1] * m, effective_steps=[1.0] * m, loss=[0.0] * m, last=[0.0] * m,
        by_part={"objective.scaffold": [{"change": c} for c in messages]} if len(messages) else {},
    )  # fmt: skip


def test_without_noise_and_bound_it_is_uniform_averaging():
    private = run_parts("fedavg+upload.dp(noise=0, clip=1e9)", CLIENTS, rounds=3)
    plain = run_parts("fedavg-uniform", CLIENTS, rounds=3)
    assert torch.allclose(private.vector, plain.vector, atol=1e-6, rtol=0)


def test_scaffolds_controls_are_those_of_scaffold_without_noise_and_bound():
    private = run_parts("scaffold+upload.dp(noise=0, clip=1e9)", CLIENTS, rounds=3)
    plain = run_parts("scaffold", CLIENTS, rounds=3)
    assert torch.allclose(private.vector, plain.vector, atol=1e-6, rtol=0)
    assert torch.allclose(private.memory, plain.memory, atol=1e-6, rtol=0)


@pytest.mark.parametrize("clip", [0.01, 0.3])
def test_a_client_sends_an_update_of_exactly_the_bound(clip):
    outcome = run_parts(f"fedavg+upload.dp(noise=0, clip={clip})", CLIENTS, rounds=1)
    lengths = [value for _, _, value in outcome.notes("norm")]
    assert min(lengths) > clip  # otherwise this test could not fail
    # All four are shortened, so their mean is at most the bound, and one client alone reaches it.
    alone = run_parts(f"fedavg+upload.dp(noise=0, clip={clip})", CLIENTS, rounds=1, selection="list([2])", cohort=None)
    moved = (alone.vector - alone.setup.runtime.initial).double().norm().item()
    assert moved <= clip
    assert moved == pytest.approx(clip, rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 3),
    st.sampled_from([0.0, 1e-8, 1.0, 1e4, 1e18]),
    st.sampled_from([0.0, 1.0, 1e9]),
    st.integers(0, 10**6),
)
def test_no_client_moves_what_is_released_by_more_than_the_bound(others, scale, control_scale, seed):
    """The sum over everything covered, with and without one client that may send anything."""
    setup = setup_of("scaffold", "dp(noise=0, clip=0.5)")
    server, part = window(setup)
    draw = torch.Generator().manual_seed(seed)
    n, nP = setup.plan.layout.n, setup.plan.layout.nP
    updates = [torch.randn(n, generator=draw) for _ in range(others)] + [scale * torch.randn(n, generator=draw)]
    controls = [torch.randn(nP, generator=draw) for _ in range(others)] + [
        control_scale * torch.randn(nP, generator=draw)
    ]

    def released(count: int):
        _, seen = part.release(server, server.vector, replies_of(server, updates[:count], controls[:count]))
        total = sum((v - s).double() for v, s in zip(seen.vectors, seen.sent))
        control = sum(m["change"].double() for m in seen.by_part["objective.scaffold"])
        return total, control

    with_it, without = released(others + 1), released(others)
    change = joint_norm(with_it[0] - without[0], [with_it[1] - without[1]])
    assert change <= 0.5 * (1 + 1e-4)


@pytest.mark.parametrize("answered", [0, 1, 4])
def test_the_noise_on_the_sum_has_the_stated_deviation_however_many_answer(answered):
    setup = setup_of("scaffold", "dp(noise=2, clip=0.25)")
    server, part = window(setup)
    zero, control = torch.zeros(setup.plan.layout.n), torch.zeros(setup.plan.layout.nP)
    mixed, seen = part.release(server, server.vector, replies_of(server, [zero] * answered, [control] * answered))
    noise = (mixed - server.vector).double() * setup.plan.cohort  # divided by the expected cohort, never by the answers
    controls = sum(m["change"].double() for m in seen.by_part["objective.scaffold"])
    for drawn in (noise, controls):
        deviation = 2 * 0.25
        low, high = (stats.chi2.ppf(q, len(drawn)) for q in (1e-5, 1 - 1e-5))
        assert low < float(drawn.square().sum()) / deviation**2 < high
        assert stats.kstest(drawn.numpy() / deviation, "norm").pvalue > 1e-4


def test_a_lost_client_leaves_the_noise_and_the_divisor_as_they_are():
    whole = run_parts("fedavg+upload.dp(noise=0, clip=0.1)", CLIENTS, rounds=1)
    lost = run_parts("fedavg+upload.dp(noise=0, clip=0.1)", CLIENTS, rounds=1, lose={(0, 0), (0, 1), (0, 2)})
    initial = whole.setup.runtime.initial
    # One of four answers: its update counts a quarter, as it does among four.
    assert (lost.vector - initial).double().norm().item() == pytest.approx(0.1 / 4, rel=1e-4)


def test_an_empty_poisson_cohort_is_a_round_of_noise_and_not_drawn_again():
    outcome = run_parts(
        "fedavg+upload.dp(noise=1, clip=1)", CLIENTS, rounds=4, selection="probability(0.02)", cohort=None
    )
    cohorts = [row[0] for row in outcome.store.record.all("SELECT cohort FROM rounds ORDER BY round")]
    assert "[]" in cohorts
    spent = [value for _, _, value in outcome.notes("epsilon")]
    assert len(spent) == 4
    assert spent == sorted(spent)
    moved = (outcome.vector - outcome.setup.runtime.initial).abs()
    assert bool((moved > 0).all())


def test_capped_sizes_weigh_before_the_update_leaves():
    # Clients of 24, 29, 34 and 39 samples: with the cap 24 all weigh 1, with the cap 48 client 0 weighs a half.
    def alone(cap: int) -> float:
        outcome = run_parts(
            f"fedavg+upload.dp(noise=0, clip=0.1, cap={cap})", CLIENTS, rounds=1, selection="list([0])", cohort=None
        )
        part = outcome.setup.method.on("upload")[0]
        moved = (outcome.vector - outcome.setup.runtime.initial).double().norm().item()
        return moved * part.divisor(outcome.setup.plan, 1.0)

    assert alone(24) == pytest.approx(0.1, rel=1e-4)
    assert alone(48) == pytest.approx(0.05, rel=1e-4)


def test_the_adaptive_bound_approaches_the_quantile_of_the_lengths():
    outcome = run_parts(
        'fedavg+upload.dp(noise=0, clip="adaptive(0.5, 1)")', CLIENTS, rounds=60, lr=0.01, evaluate_every=100
    )
    bounds = [value for _, _, value in outcome.notes("clip")]
    last = [value for round, _, value in outcome.notes("norm") if round >= 55]
    assert bounds[0] == 1
    assert bounds[1] == pytest.approx(math.exp(-0.2 * (1 - 0.5)), rel=1e-6)  # all four were below it
    assert min(last) / 1.5 < bounds[-1] < max(last) * 1.5


def test_the_adaptive_counts_noise_is_paid_by_the_update():
    part = ud.upload.dp(noise=1.0, clip="adaptive(0.5)")
    setup = setup_of("fedavg", 'dp(noise=1, clip="adaptive(0.5)")')
    server, _ = window(setup)
    mixed, _ = part.release(server, server.vector, replies_of(server, []))
    count_noise = 1.0  # max(cohort/20, z)
    deviation = (1.0**-2 - (2 * count_noise) ** -2) ** -0.5
    measured = ((mixed - server.vector).double() * 4).std().item()
    assert measured == pytest.approx(deviation, rel=0.2)
    assert deviation**-2 + (2 * count_noise) ** -2 == pytest.approx(1.0)  # together they cost what z alone would


def test_noise_of_the_operating_system_is_normal_and_never_the_same():
    first, second = system_normal(20_001), system_normal(20_001)
    assert not torch.equal(first, second)
    assert len(first) == 20_001
    assert stats.kstest(first.numpy(), "norm").pvalue > 1e-4
    assert abs(np.corrcoef(first.numpy()[:10_000], first.numpy()[10_000:20_000])[0, 1]) < 0.05


# ---- what ε does not cover ----------------------------------------------------------------------------------------

REFUSED = {"fedbn"}  # on a plain network there is nothing to normalise


def outcome_of(name: str) -> str:
    try:
        own = {"model": lambda: adapted_network(5, 3, merged=True)} if needs_adapters(name) else {}
        run_parts(f"{name}+upload.dp(noise=0.5, clip=1)", CLIENTS, rounds=2, evaluate_every=2, **own)
    except BadRequest as refusal:
        return str(refusal)
    return "runs"


def test_every_method_runs_under_dp_or_is_refused_with_its_sentence():
    found = {name: outcome_of(name) for name in PUBLISHED if name not in REFUSED}
    run = {name for name, how in found.items() if how == "runs"}
    assert len(run) >= 20, sorted(run)
    assert {"fedavg", "fedprox", "scaffold", "feddyn", "fedlc", "fliu", "ditto", "fedadam"} <= run
    for name in ("bound", "fednolowe", "flood", "fedasl", "feddisco"):
        assert "does not cover" in found[name]
        assert "--uncovered accept" in found[name]
    for name in ("median", "geomedian", "fednova", "fedma"):
        assert "is no mean" in found[name]
    assert "models of their own" in found["fedfomo"]
    assert all(how == "runs" or "dp" in how or "proxy" in how or "cohort" in how for how in found.values()), found


def test_accepted_statistics_are_listed_and_the_weights_are_used():
    outcome = run_parts("fednolowe+upload.dp(noise=0, clip=1e9)", CLIENTS, rounds=2, uncovered="accept", lr=0.01)
    plain = run_parts("fednolowe", CLIENTS, rounds=2, lr=0.01)
    assert torch.allclose(outcome.vector, plain.vector, atol=1e-6, rtol=0)
    (part,) = outcome.setup.method.on("upload")
    assert any("fednolowe" in name or "weights" in name for name in part.privacy(outcome.setup.plan, 1)["uncovered"])


@pytest.mark.parametrize(
    ("upload", "options", "words"),
    [
        ("dp(epsilon=0)", {}, "epsilon must be"),
        ("dp(epsilon=-1)", {}, "epsilon must be"),
        ("dp(noise=1, delta=0)", {}, "delta must be"),
        ("dp(noise=1, delta=1)", {}, "delta must be"),
        ("dp(noise=1, clip=0)", {}, "clip must be above 0"),
        ("dp(noise=1, clip=-2)", {}, "clip must be above 0"),
        ('dp(noise=1, clip="adaptive(2)")', {}, "between 0 and 1"),
        ('dp(noise=1, clip="adapt(0.5)")', {}, "adaptive(0.5)"),
        ("dp(epsilon=8, noise=1)", {}, "not both"),
        ("dp(noise=1)+topk(0.1)", {}, "last upload part"),
        ("quantize(8)+dp(noise=1)", {}, "use topk with dp"),
        ("dp(noise=1)", {"combine": "median"}, "is no mean"),
        ("dp(noise=1)", {"uncovered": "yes"}, "uncovered"),
        ("dp(noise=1)", {"stop_at_epsilon": 0.001}, "the first round spends"),
        ("topk(0.1)", {"stop_at_epsilon": 1.0}, "counts ε"),
        ("topk(0.1)", {"combine": "median"}, "topk with a mean"),
        ("topk(0)", {}, "share must be"),
        ("quantize(1)", {}, "bits must be"),
        ("quantize(20)", {}, "bits must be"),
        ("quantize(8)+topk(0.1)", {}, "last upload part"),
    ],
)
def test_bad_values_get_one_sentence(upload, options, words):
    with pytest.raises(BadRequest, match=words.replace("(", r"\(").replace(")", r"\)")) as refusal:
        setup_of("fedavg", upload, **options)
    assert "\n" not in str(refusal.value)


def test_batchnorm_is_refused_by_name():
    from undrift.testing import small_network

    with pytest.raises(BadRequest, match="norm=group"):
        prepare(
            from_keywords({**QUICK, "model": lambda: small_network(5, 3, norm=True), "upload": "dp(noise=1)"}),
            CLIENTS,
        )


def test_a_large_delta_is_a_warning():
    notices = setup_of("fedavg", "dp(noise=1, delta=0.3)").notices
    assert any("above 1/N" in sentence for sentence in notices)
    assert any("seeded noise protects nobody" in sentence for sentence in notices)


def test_without_the_extra_the_sentence_says_how_to_get_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BadRequest, match=r"undrift\[privacy\]"):
        setup_of("fedavg", "dp(epsilon=3.21)")


# ---- the count over a run ------------------------------------------------------------------------------------------


def test_the_summary_and_every_round_have_epsilon(tmp_path):
    options = {"data": "digits", "clients": 8, "rounds": 3, "selection": "probability(0.5)", "upload": "dp(noise=1)"}
    result = ud.run("fedavg", out=tmp_path / "run", **options)
    privacy = result.summary["privacy"]
    assert privacy["epsilon"] == pytest.approx(result.setup.epsilon(3))
    assert privacy["relation"] == "add or remove one client"
    assert privacy["seeded"] is True
    assert any("search" in name for name in privacy["uncovered"])
    assert len(result.rows("SELECT value FROM notes WHERE name = 'epsilon'")) == 3


def test_the_noise_is_calibrated_to_the_planned_rounds_and_more_are_refused(tmp_path):
    options = {"data": "digits", "clients": 8, "rounds": 3, "selection": "probability(0.5)", "upload": "dp(epsilon=4)"}
    result = ud.run("fedavg", out=tmp_path / "run", **options)
    assert 0.99 * 4 <= result.summary["privacy"]["epsilon"] <= 4
    with pytest.raises(BadRequest, match="calibrated for 3 rounds"):
        ud.resume(tmp_path / "run", rounds=4)


def test_it_stops_before_the_budget_is_exceeded():
    setup = setup_of(
        "fedavg", "dp(noise=1)", rounds=50, stop_at_epsilon=5.0, selection="probability(0.25)", cohort=None
    )
    rounds = setup.plan.rounds
    assert 1 <= rounds < 50
    whole = replace(setup.plan, rounds=50)
    (part,) = setup.method.on("upload")
    assert part.privacy(whole, rounds)["epsilon"] <= 5.0 < part.privacy(whole, rounds + 1)["epsilon"]


def test_the_page_and_the_terminal_say_what_is_not_covered(tmp_path, capsys):
    from undrift.cli import command

    folder = tmp_path / "run"
    command(
        ["run", "--data", "digits", "--clients", "8", "--rounds", "2", "--upload", "dp(noise=1)", "--out", str(folder)]
    )
    printed = capsys.readouterr().out
    assert "not covered: training losses" in printed
    command(["show", str(folder)])
    assert "replace one client" in capsys.readouterr().out
    command(["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert "not covered: training losses" in (tmp_path / "page.html").read_text()


def test_cost_counts_the_bytes_that_travel():
    plain = run_parts("fedavg", CLIENTS, rounds=1, diagnose="cost", evaluate_every=1)
    sparse = run_parts("fedavg+topk(0.1)", CLIENTS, rounds=1, diagnose="cost", evaluate_every=1)

    def up(outcome) -> float:
        return outcome.store.record.all("SELECT value FROM metrics WHERE metric='bytes_up' AND client IS NULL")[0][0]

    n = plain.setup.plan.layout.n
    assert up(plain) == 4 * 4 * n
    assert up(sparse) == 4 * (4 * math.ceil(0.1 * n) + math.ceil(n / 8))  # the values, and a bit for every entry
