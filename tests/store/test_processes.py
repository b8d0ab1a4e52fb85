"""A process starts once and ends once, whoever asks, and however often."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from recovery.records import ErrorInfo, Process, ProcessState
from recovery.records.ids import new_process_id
from recovery.store import Store
from tests.store import single
from tests.store.writing import contents, is_about, is_close, put

DAY = timedelta(days=1)
ERROR = ErrorInfo(kind="ValueError", message="$$NOW", task="t", actor="add", stack="...")
ARGS = '[["$x"],{"a.b":{"$set":1}}]'


def wanted(**fields: object) -> Process:
    return Process(id=new_process_id(), type="order", args=ARGS).evolve(**fields)


def get(store: Store, process_id: str) -> Process:
    found = store.processes.get(process_id)
    assert found is not None
    return found


@pytest.mark.parametrize("custom_id", [None, "order 1", "$$ROOT"])
def test_insert(store: Store, custom_id: str | None) -> None:
    process = wanted(custom_id=custom_id, idle_timeout=45.0)
    saved = store.processes.insert(process, first_look=12)
    assert saved == get(store, process.id)
    assert is_close(saved.started_at, store.now())
    assert is_close(saved.recovery_time, store.now() + timedelta(seconds=12))
    assert saved.evolve(started_at=None, recovery_time=None) == process


@pytest.mark.parametrize("custom_id", [None, "order 1"])
def test_inserted_twice_is_one(store: Store, custom_id: str | None) -> None:
    process = wanted(custom_id=custom_id)
    saved = store.processes.insert(process, first_look=12)
    assert single.finish_process(store, process.id, 0, "1")
    again = store.processes.insert(process, first_look=99)
    assert again.id == saved.id
    assert again.state is ProcessState.FINISHED, "what is there stays as it is"
    assert again == get(store, process.id).evolve(result=None), "briefly"


def test_a_custom_id_is_of_one_type(store: Store) -> None:
    one, same, other_type, other = (
        store.processes.insert(wanted(type=kind, custom_id=custom), first_look=12)
        for kind, custom in [("order", "1"), ("order", "1"), ("refund", "1"), ("order", "2")]
    )
    assert (one.id, one.started_at, one.state) == (same.id, same.started_at, same.state)
    assert len({one.id, other_type.id, other.id}) == 3
    without = {store.processes.insert(wanted(), first_look=12).id for _ in range(3)}
    assert len(without) == 3


def test_eight_at_once_with_one_custom_id_start_one(store: Store) -> None:
    barrier = Barrier(8)

    def insert(turn: int) -> str:
        barrier.wait()
        return store.processes.insert(wanted(custom_id=f"order {turn}"), first_look=12).id

    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            assert len(set(pool.map(insert, [turn] * 8))) == 1
    assert store.database["processes"].count_documents({}) == 20


ENDS: dict[str, Callable[[Store, str, int], bool]] = {
    "finish": lambda store, key, epoch: single.finish_process(store, key, epoch, '"$x"'),
    "break": lambda store, key, epoch: store.processes.break_(key, epoch, ERROR),
}


@pytest.mark.parametrize("how", ENDS)
def test_ends_once(store: Store, how: str) -> None:
    process = store.processes.insert(wanted(), first_look=12)
    assert ENDS[how](store, process.id, 0)
    ended = get(store, process.id)
    assert ended.state is (ProcessState.FINISHED if how == "finish" else ProcessState.BROKEN)
    assert (ended.result, ended.error) == (('"$x"', None) if how == "finish" else (None, ERROR))
    assert ended.recovery_time is None
    assert is_close(ended.ended_at, store.now())
    assert [end(store, process.id, 0) for end in ENDS.values()] == [False, False]
    assert get(store, process.id) == ended


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(
    "fields",
    [{"epoch": 1}, *({"state": state} for state in ProcessState if state is not ProcessState.RUNNING)],
    ids=lambda fields: str(*fields.values()),
)
def test_ends_only_what_runs_in_this_epoch(store: Store, how: str, fields: dict[str, object]) -> None:
    process = wanted(recovery_time=store.now(), **fields)
    put(store, process)
    before = contents(store, "processes")
    assert not ENDS[how](store, process.id, 0)
    assert not ENDS[how](store, "none", 0)
    assert contents(store, "processes") == before


def test_eight_that_end_it_at_once_end_it_once(store: Store) -> None:
    process, barrier = store.processes.insert(wanted(), first_look=12), Barrier(8)

    def end(number: int) -> bool:
        barrier.wait()
        return single.finish_process(store, process.id, 0, str(number))

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(end, range(8))) == [False] * 7 + [True]


def test_stamp_gives_a_deadline_to_what_runs_and_has_none(store: Store) -> None:
    running, soon, ended = wanted(), wanted(recovery_time=store.now() + DAY), wanted(state=ProcessState.FINISHED)
    put(store, running, soon, ended)
    before = contents(store, "processes")
    assert store.processes.without_deadline(10) == [running.id]
    assert store.processes.stamp([running.id, soon.id, ended.id]) == 1
    assert is_close(get(store, running.id).recovery_time, store.now())
    after = contents(store, "processes")
    assert {key for key in after if after[key] != before[key]} == {running.id}
    assert store.processes.without_deadline(10) == []


@pytest.mark.parametrize(("age", "later"), [(10, 60), (7200, 7200)])
def test_looks_grow_rare(store: Store, age: float, later: float) -> None:
    now = store.now()
    overdue = wanted(started_at=now - timedelta(seconds=age), recovery_time=now - DAY)
    healthy = wanted(started_at=now - timedelta(seconds=age), recovery_time=now + DAY)
    put(store, overdue, healthy)
    assert store.processes.postpone_idle([overdue.id, healthy.id]) == 1
    assert is_about(get(store, overdue.id).recovery_time, now, later)
    assert get(store, healthy.id).recovery_time == healthy.recovery_time


def test_one_that_ended_and_kept_a_deadline_does_not_stand_in_the_way(store: Store) -> None:
    """Nobody here leaves one behind; the longest overdue come first, and it would do so for ever."""
    ended = wanted(state=ProcessState.ABORTED, recovery_time=store.now() - DAY)
    put(store, ended)
    assert store.processes.overdue(10) == [ended.id]
    assert store.processes.postpone_idle([ended.id]) == 1
    assert store.processes.overdue(10) == []
