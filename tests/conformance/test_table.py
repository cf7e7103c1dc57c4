"""Every published method and every part is in the table, and what is in it does something."""

from __future__ import annotations

from dataclasses import replace

import torch

from undrift.contract.parts import AXES, Part, axes_of, defines
from undrift.core.text import parse_method
from undrift.methods.naming import method, part_tables
from undrift.methods.published import PUBLISHED


def test_every_published_name_is_a_row(rows):
    named = {call.name for row in rows for _, call in parse_method(row.text)}
    assert sorted(set(PUBLISHED) - named) == []


def test_every_exported_part_is_in_a_row(rows):
    there = {(axis, part.name) for row in rows for part in method(row.text).parts for axis in axes_of(part)}
    exported = {(axis, name) for axis, table in part_tables().items() for name in table}
    assert sorted(exported - there) == []


def test_every_part_has_the_name_it_is_exported_under(rows):
    for row in rows:
        for part in method(row.text).parts:
            assert any(part_tables()[axis].get(part.name) is type(part) for axis in axes_of(part)), part


def test_differs_from_fedavg_or_the_table_says_why_not(any_row, undisturbed):
    row = any_row
    plain, outcome = undisturbed(replace(row, text="fedavg")), undisturbed(row)
    assert outcome.events == []
    assert torch.isfinite(outcome.vector).all()
    assert torch.equal(outcome.vector, plain.vector) == bool(row.like_fedavg)


def test_its_schedule_is_on_before_the_run_ends(row, undisturbed):
    """A row whose schedule never switches anything on would test plain averaging: the run would say so."""
    assert [said for said in undisturbed(row).setup.notices if "lengthen the run" in said] == []


def test_what_clients_hold_differs_where_the_global_model_does_not(rows, undisturbed):
    fedavg = undisturbed(next(row for row in rows if row.text == "fedavg"))
    for row in rows:
        if row.like_fedavg.startswith("the global model"):
            held = undisturbed(row).metrics("L1", "own", "loss")
            assert held != fedavg.metrics("L1", "own", "loss"), row


def test_every_hook_of_the_contract_is_used_by_a_shipped_part(rows):
    parts = [part for row in rows for part in method(row.text).parts]
    hooks = {
        name
        for axis in (Part, *AXES.values())
        for name, value in vars(axis).items()
        if callable(value) and not name.startswith("_")
    }
    assert len(hooks) > 20
    assert sorted(hook for hook in hooks if not any(defines(part, hook) for part in parts)) == []
