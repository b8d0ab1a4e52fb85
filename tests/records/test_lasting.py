"""What a task forgets when it is queued again, restarted, or done again: each field of its decision says it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from recovery.records import Decision, Until, field_name, forgotten, reset

KEPT = {
    *("_id", "actor", "state", "epoch", "fallible", "call", "eta", "delay", "pinnedTo", "trace"),
    *("fresh", "pacedTo"),  # those who write them take them off
}
"""Whoever adds a field says how long it lasts, or that it stays."""


def test_what_ends_later_forgets_what_ends_sooner() -> None:
    attempt, life, epoch = (set(forgotten(until)) for until in Until)
    assert attempt < life < epoch
    assert attempt == {"worker", "inBatch"}
    assert life - attempt == {"outcome", "children", "lostAttempt", "workersLost", "retry", "refused", "alone"}


def test_counts_begin_anew() -> None:
    assert [reset(until) for until in Until] == [{}, {"timeouts": 0}, {"timeouts": 0, "attempts": 0}]


@pytest.mark.parametrize("name", sorted(field_name(one.name) for one in fields(Decision)))
def test_of_each_field_it_is_known(name: str) -> None:
    assert (name in KEPT) != (name in forgotten(Until.NEXT_EPOCH) or name in reset(Until.NEXT_EPOCH))
