"""Queries and updates of tasks that workers refuse cost what is refused, not what exists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery.records import Decision, DecisionState, Refused, VersionRefusal, Worker
from recovery.settings import Settings
from recovery.store import Store
from tests.store.writing import get, put

TASKS = 100


@pytest.fixture
def store(emptied: Settings) -> Store:
    """One with a process of many tasks, half of which are delayed and half queued."""
    store = Store(emptied)
    later = store.now() + timedelta(seconds=30)
    states = (DecisionState.DELAYED, DecisionState.QUEUED)
    put(store, *(_decision(f"p/{number}", states[number % 2], later) for number in range(TASKS)))
    return store


def _decision(key: str, state: DecisionState, later: Any, refused: Refused | None = None) -> Decision:
    return Decision(id=key, actor="pack", state=state, eta=later, recovery_time=later, refused=refused)


def refuse(store: Store) -> None:
    """Have a task of the process refused, and one of another process."""
    now = store.now()
    refused = Refused(count=1, attempts=0, pass_key="k", by=(VersionRefusal(version="1.0", since=now, why="no"),))
    later = now + timedelta(seconds=30)
    put(store, *(_decision(f"{process}/refused", DecisionState.DELAYED, later, refused) for process in ("p", "q")))
    store.catch_up(10)


def examined(store: Store, step: Callable[[], Any]) -> int:
    """How many decisions MongoDB reads for a step."""
    store.database.command("profile", 2)
    try:
        step()
    finally:
        store.database.command("profile", 0)
    ran = store.database["system.profile"].find({"ns": f"{store.database.name}.decisions"})
    found = [one["docsExamined"] for one in ran if "docsExamined" in one]
    assert found, "nothing was asked"
    store.database["system.profile"].drop()
    return sum(found)


def test_who_waits_for_a_process_without_refused_tasks_reads_none(store: Store) -> None:
    store.catch_up(10)
    assert store.refusals.of_process("p") == []
    assert examined(store, lambda: store.refusals.of_process("p")) == 0


def test_the_refused_tasks_of_a_process(store: Store) -> None:
    refuse(store)
    assert [one.id for one in store.refusals.of_process("p")] == ["p/refused"]
    assert store.refusals.of_process("o") == []


def test_a_worker_that_registers_reads_only_what_is_refused(store: Store) -> None:
    refuse(store)
    changed: list[int] = []
    assert examined(store, lambda: changed.append(store.task_deadlines.hurry_refused(["pack", "ship"], "2.0"))) == 2
    assert changed == [2]
    due = get(store, "p/refused")
    assert due.eta == due.recovery_time and due.eta is not None and due.eta <= store.now()


def test_a_worker_of_a_version_that_has_refused_them_hurries_none(store: Store) -> None:
    refuse(store)
    assert store.task_deadlines.hurry_refused(["pack", "ship"], "1.0") == 0


@pytest.mark.parametrize("pinned_to", [None, "1.0"])
def test_a_worker_that_records_no_version_has_refused_nothing(store: Store, pinned_to: str | None) -> None:
    """Not a pinned task either: it knows no pins."""
    workers = {"one": "1.0", "two": "2.0", "older": None}
    for name, version in workers.items():
        made = Worker(id=name, name=name, host="h", pid=1, pid_started=1, queues=("pack",), application_version=version)
        store.workers.beat(made, 60)
    able = {"1.0", None} if pinned_to else {"1.0", "2.0", None}
    assert store.workers.versions_serving("pack", pinned_to) == able
