"""Lock-step, row by row: which rows can do it, and that it changes nothing but the last digits."""

from __future__ import annotations

import pytest
import torch

from undrift.contract.parts import defines
from undrift.methods.naming import method
from undrift.round.lockstep.decide import IN_EPOCHS, NEVER, part_refuses
from undrift.store.trees import dump
from undrift.testing.stacks import in_stacks, together

# Features of a layer with dead units are divided by a deviation near zero, which makes rounding visible.
TOLERANCE = {"feddecorr": 1e-3}
REFUSED = {"fedsam", "pfedme", "dpsgd"}  # they look at one client's network


def able(row) -> bool:
    return not {part.name for part in method(row.text).parts} & REFUSED


def test_a_result_depends_on_no_stack_and_is_that_of_one_by_one(row, undisturbed, federation, settings):
    if row.model != "plain" or not able(row):
        pytest.skip("one by one")
    options = settings(row)
    found = [in_stacks(clients, row.text, federation, **options) for clients in (1, 2, 7)]
    assert all(outcome.setup.plan.lockstep for outcome in found)
    for other in found[1:]:
        assert torch.equal(found[0].vector, other.vector)
        assert torch.equal(found[0].sent, other.sent)
        assert states_of(found[0]) == states_of(other)
        assert list(found[0].store.record.all("SELECT * FROM metrics")) == list(
            other.store.record.all("SELECT * FROM metrics")
        )
    if not row.noisy:
        tolerance = TOLERANCE.get(row.text, 1e-4)
        assert torch.allclose(found[0].vector, undisturbed(row).vector, rtol=tolerance, atol=tolerance)


def states_of(outcome):
    """All that the clients keep, as bytes."""
    versions = outcome.server_state.versions
    return {row: dump(outcome.store.states.get(*row, versions[row])) for row in versions}


def record_of(outcome):
    """All that a run recorded, without its times."""
    tables = {
        table: list(outcome.store.record.all(f"SELECT * FROM {table}")) for table in ("metrics", "notes", "events")
    }
    return tables | {"cohorts": list(outcome.store.record.all("SELECT round, lr, cohort FROM rounds"))}


def test_runs_side_by_side_have_the_records_of_runs_that_are_alone(row, federation, settings):
    if row.model != "plain" or not able(row):
        pytest.skip("one by one")
    runs = [{**settings(row), "evaluate_every": 1, "seed": 3, "lr": 0.1}, {**settings(row), "seed": 4, "lr": 0.07}]
    beside = together(row.text, federation, *runs)
    for own, found in zip(runs, beside):
        alone = in_stacks(50, row.text, federation, **own)
        assert torch.equal(found.vector, alone.vector)
        assert torch.equal(found.sent, alone.sent)
        assert record_of(found) == record_of(alone)


def test_only_what_holds_one_clients_network_is_refused(rows):
    for row in rows:
        for part in method(row.text).parts:
            hooks = any(defines(part, hook) for hook in (*IN_EPOCHS, *NEVER))
            assert (bool(part_refuses(part))) == (part.name in REFUSED), part
            assert part.lockstep == (hooks and part.name not in REFUSED), part
