"""Totals of an operation add up; each of its results has an id of its own."""

from __future__ import annotations

from recovery.records import Totals
from recovery.records.operation_parts import result_id

ONE = Totals(
    processes=1, decisions=2, found=3, done=4, nothing=5, changed=6, errors=7,
    rules={"lost": 1, "late": 2}, repaired={"lost": 3}, types={"order": 4},
)  # fmt: skip
OTHER = Totals(
    processes=10, decisions=20, found=30, done=40, nothing=50, changed=60, errors=70,
    rules={"due": 10, "late": 20}, repaired={"due": 30}, types={"order": 40, "ship": 50},
)  # fmt: skip


def test_totals_are_added_field_by_field() -> None:
    added = ONE + OTHER
    assert added == Totals(
        processes=11, decisions=22, found=33, done=44, nothing=55, changed=66, errors=77,
        rules={"lost": 1, "late": 22, "due": 10}, repaired={"lost": 3, "due": 30}, types={"order": 44, "ship": 50},
    )  # fmt: skip


def test_adding_nothing_changes_no_totals() -> None:
    assert ONE + Totals() == Totals() + ONE == ONE


def test_names_that_both_count_keep_the_order_of_the_first() -> None:
    assert list((ONE + OTHER).rules) == ["lost", "late", "due"]


def test_a_result_is_named_after_its_operation_and_process() -> None:
    assert result_id(7, "p") == "7/p"
