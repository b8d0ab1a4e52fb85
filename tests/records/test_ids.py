"""Ids: their order, their ranges, and that derived ones are always the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.records.ids import (
    AFTER_SEPARATOR,
    HOLDER_END,
    SEPARATOR,
    START_TASK,
    child_task_id,
    holder,
    is_pass,
    is_process_id,
    is_record_id,
    new_pass,
    new_process_id,
    record_id,
    split_record_id,
    started_at,
    worker_of,
)
from tests.examples import examples

TASKS = st.sampled_from([START_TASK]) | st.builds(child_task_id, st.text(max_size=5), st.integers(0), st.integers(0))


def test_process_ids_sort_by_time() -> None:
    drawn = [new_process_id() for _ in range(5000)]
    assert drawn == sorted(set(drawn))
    assert all(len(i) == 32 and i.isalnum() for i in drawn)


def test_a_process_id_tells_when_its_process_was_started() -> None:
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    # 1,700,000,000,123 milliseconds; what follows is drawn.
    assert started_at(f"018bcfe5687b{'f' * 20}") == moment
    before = datetime.now(UTC)
    assert abs((started_at(new_process_id()) - before).total_seconds()) < 5
    assert started_at("f" * 32).year == 9999, "the calendar ends before what an id can name"
    with pytest.raises(ValueError, match="invalid literal"):
        started_at("order-17")


@examples(20)
@given(TASKS)
def test_ids_that_are_made_here_are_of_our_form(task: str) -> None:
    assert is_process_id(new_process_id()) and is_pass(new_pass())
    assert is_record_id(record_id(new_process_id(), task))


@pytest.mark.parametrize(
    "value",
    [
        "", "p", "P" * 32, "f" * 31, "f" * 33, "f" * 32 + "\n", "\uff11" * 32, "\u0661" * 32, "\ud800" * 32,
        b"f" * 32, {"$gt": ""}, None, 5, ["f" * 32],
        f"{'f' * 32}/", f"{'f' * 32}/start\n", f"{'f' * 32}/stop", f"{'f' * 32}//start",
        f"{'f' * 32}/{'a' * 15}", f"{'f' * 32}/{'1' * 16}",
    ],
)  # fmt: skip
def test_everything_else_is_not(value: Any) -> None:
    assert not (is_process_id(value) or is_pass(value) or is_record_id(value))


def test_passes_differ() -> None:
    assert len({new_pass() for _ in range(1000)}) == 1000


@examples(30)
@given(st.lists(st.uuids().map(lambda u: u.hex), min_size=2, max_size=5, unique=True), st.lists(TASKS, min_size=1))
def test_the_records_of_a_process_are_one_range(processes: Sequence[str], tasks: Sequence[str]) -> None:
    for process in processes:
        low, high = process + SEPARATOR, process + AFTER_SEPARATOR
        for other in processes:
            within = [low <= record_id(other, task) < high for task in tasks]
            assert set(within) == {other == process}
        assert not low <= process < high


@examples(30)
@given(st.uuids().map(lambda u: u.hex), TASKS)
def test_a_record_id_comes_apart(process: str, task: str) -> None:
    assert split_record_id(record_id(process, task)) == (process, task)


def test_a_record_id_comes_apart_at_its_first_slash() -> None:
    assert split_record_id("p/t/u") == ("p", "t/u")
    assert split_record_id("p") == ("p", "")


def test_a_child_id_is_the_same_everywhere() -> None:
    """Stored by one version, derived again by another: it must never change."""
    assert child_task_id("start", 0, 0) == "2d6kojyolo2sa2lk"


@examples(30)
@given(
    st.lists(st.tuples(TASKS, st.integers(0, 300), st.integers(0, 300)), min_size=2, max_size=20, unique=True),
)
def test_child_ids_are_distinct_by_parent_epoch_and_place(places: list[tuple[str, int, int]]) -> None:
    ids = [child_task_id(*place) for place in places]
    assert len(set(ids)) == len(ids)
    # Keys of a document, and of paths in it: no dot, no dollar, not empty.
    assert all(len(i) == 16 and i.isalnum() for i in ids)


@examples(30)
@given(st.uuids().map(lambda u: u.hex), st.integers(1, 2**22), st.integers(1, 2**22))
def test_the_holders_of_a_worker_are_one_range(worker: str, pid: int, other: int) -> None:
    name = holder(worker, pid)
    assert worker_of(name) == worker == worker_of(worker)
    assert worker <= name < worker + HOLDER_END
    # Of one holder: no other one whose pid only begins with the same digits.
    assert (name <= holder(worker, other) < name + HOLDER_END) == (pid == other)
    thread = holder(worker, other, pid)
    assert worker_of(thread) == worker <= thread < worker + HOLDER_END
    assert (name <= thread < name + HOLDER_END) == (pid == other)


def test_a_holder_is_written_as_its_worker_its_process_and_its_thread() -> None:
    assert (holder("w", 7), holder("w", 7, 0)) == ("w#7", "w#7#0")
