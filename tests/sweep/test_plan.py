"""Ranges: every process lies in exactly one, and they are even."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.records.ids import new_process_id, record_id
from recovery.store.views.ranges import Range
from recovery.survey.plan import MAX_RANGES, how_many, plan, ranges, refine
from tests.sweep.database import Database
from tests.sweep.shapes import finished

IDS = st.lists(st.text("0123456789abcdef", min_size=32, max_size=32), unique=True).map(sorted)


def holds(part: Range, key: str) -> bool:
    bounds = part.condition().get("_id", {})
    return bounds.get("$gte", "") <= key and ("$lt" not in bounds or key < bounds["$lt"])


@given(ids=IDS, drawn=st.lists(st.integers(0, 50)), data=st.data())
def test_every_process_lies_in_exactly_one_range_with_all_its_records(
    ids: list[str], drawn: list[int], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.sampled_from(ids)))) if ids else []
    sample = sorted(ids[place % len(ids)] for place in drawn) if ids else []
    parts = ranges(refine(cuts, sample, fair=2))
    for process_id in ids:
        for key in (process_id, record_id(process_id, "0"), record_id(process_id, "zzzz")):
            containing = [part for part in parts if holds(part, key)]
            assert len(containing) == 1
            assert holds(containing[0], process_id)


@given(IDS, st.integers(1, 20))
def test_ranges_follow_each_other_without_a_gap(cuts: list[str], _: int) -> None:
    parts = ranges(cuts)
    assert parts[0].start is None and parts[-1].end is None
    assert all(left.end == right.start for left, right in itertools.pairwise(parts))


def test_a_range_that_is_drawn_far_too_often_is_cut_again() -> None:
    ids = [f"{place:032x}" for place in range(100)]
    assert refine([ids[50]], [*ids[10:40], ids[60]], fair=10) == [ids[20], ids[30], ids[50]]


def test_one_giant_process_is_not_cut() -> None:
    assert refine([], ["a" * 32] * 100, fair=10) == ["a" * 32]


@pytest.mark.parametrize(
    ("processes", "decisions", "cores", "expected"),
    [
        (0, 0, 2, 4),
        (100, 1200, 8, 16),
        (100_000, 1_200_000, 2, 12),
        (1000, 6_000_000, 2, 60),
        (10**8, 0, 2, MAX_RANGES),
    ],
)
def test_the_number_of_ranges_follows_the_volume(processes: int, decisions: int, cores: int, expected: int) -> None:
    assert how_many(processes, decisions, cores) == expected


def test_an_empty_database_is_one_open_range(database: Database) -> None:
    assert plan(database.store.ranges, cores=2) == [Range(None, None)]


def test_ranges_of_a_database_are_even(database: Database) -> None:
    ids = sorted(database.add(finished) for _ in range(40))
    parts = plan(database.store.ranges, cores=2)
    sizes = [sum(holds(part, process_id) for process_id in ids) for part in parts]
    assert sum(sizes) == 40
    assert max(sizes) <= 10


def test_process_ids_that_the_ranges_rely_on_have_one_length() -> None:
    assert len(new_process_id()) == 32
