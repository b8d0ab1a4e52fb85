"""One record that the server can't write keeps none of the others of its update from being written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from recovery.errors import StoreError
from recovery.log_lines import Seldom
from recovery.records import Decision, DecisionState, ErrorInfo, Graph, Outcome, Process, ProcessState, RepairNote
from recovery.store import Store, definitions, record_reading
from recovery.store.splitting import POSTPONED
from tests.store.writing import put

IDS = [f"p/{n}" for n in range(7)]
BAD = 3
NEW = "f" * 32
HOUR = timedelta(hours=1)
ERROR = ErrorInfo(kind="WorkTimeout", message="late")
NOTE = RepairNote(rule="WORK_TIMEOUT", source="auto", worker="w")
W, Q, F = DecisionState.WORKING, DecisionState.QUEUED, DecisionState.FINISHED

Update = Callable[[Store, Sequence[str]], Any]
OF_DECISIONS: dict[str, tuple[Update, dict[str, Any]]] = {
    "timed_out": (lambda s, ids: s.requeues.timed_out(ids, NEW), {"state": W}),
    "requeue_worker_lost": (lambda s, ids: s.requeues.requeue_worker_lost(ids, ["w#1"], NEW), {"state": W}),
    "enqueue_due": (lambda s, ids: s.requeues.enqueue_due(ids, NEW), {"state": DecisionState.DELAYED}),
    "requeue_message_lost": (lambda s, ids: s.requeues.requeue_message_lost(ids, s.now(), NEW), {"state": Q}),
    "postpone_waiting": (lambda s, ids: s.task_deadlines.postpone_waiting(ids), {"state": Q}),
    "postpone": (lambda s, ids: s.task_deadlines.postpone(ids, 600, 700), {"state": Q}),
    "postpone_idle": (lambda s, ids: s.task_deadlines.postpone_idle(ids), {"state": Q}),
    "fail": (lambda s, ids: s.task_ends.fail(ids, ERROR, NEW), {"state": W}),
    "stamp": (lambda s, ids: s.task_deadlines.stamp(ids), {"state": Q, "recovery_time": None}),
    "rest": (lambda s, ids: s.decisions.clear_deadlines(ids), {"state": F, "outcome": Outcome(pass_key="old")}),
    "extend_all": (lambda s, _: s.decisions.extend_all("w", "add", 600), {"state": W}),
}
OF_GRAPHS: dict[str, tuple[Update, dict[str, Any]]] = {
    "note_repair": (lambda s, ids: s.graphs.note_repair(ids, NOTE, touch=True), {}),
    "rest": (lambda s, ids: s.graphs.clear_deadlines(ids), {"failed": {"a": True}}),
    "postpone_idle": (lambda s, ids: s.graphs.postpone_idle(ids), {}),
    "stamp": (lambda s, ids: s.graphs.stamp(ids), {"recovery_time": None}),
}
OF_PROCESSES: dict[str, tuple[Update, dict[str, Any]]] = {
    "postpone_idle": (lambda s, ids: s.processes.postpone_idle(ids), {}),
    "stamp": (lambda s, ids: s.processes.stamp(ids), {"recovery_time": None}),
    "note_timeouts": (lambda s, ids: s.processes.note_timeouts(ids, "order", 1.0), {}),
    "break_late": (lambda s, ids: s.processes.break_late(ids, "order", 1.0, ERROR), {}),
}
CASES = [
    pytest.param(collection, *of[name], id=f"{collection}-{name}")
    for collection, of in (("decisions", OF_DECISIONS), ("graphs", OF_GRAPHS), ("processes", OF_PROCESSES))
    for name in of
]
GROWS = [
    case
    for case in CASES
    if str(case.id).partition("-")[2] in ("timed_out", "requeue_message_lost", "enqueue_due", "break_late")
]


@pytest.fixture(autouse=True)
def _told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reading, "_seldom", Seldom(logging.getLogger("recovery.store.record_reading"), 300.0))


@pytest.fixture
def stricter(store: Store) -> Iterator[Callable[[str], None]]:
    """Have a collection's validator refuse what it let pass."""

    def change(collection: str) -> None:
        store.database.command("collMod", collection, validator={"odd": {"$ne": True}}, validationLevel="strict")

    yield change
    for name, validator in definitions.VALIDATORS.items():
        store.database.command("collMod", name, validator=validator, validationLevel=definitions.LEVEL)


def fill(store: Store, collection: str, changes: dict[str, Any]) -> list[str]:
    """Seven records, all overdue."""
    past = store.now() - HOUR
    for n, key in enumerate(IDS):
        made: dict[str, Any] = {"recovery_time": past, **changes}
        if collection == "decisions":
            times = {"queued_at": past, "enqueued_at": past}
            put(store, Decision(id=key, **{"actor": "add", "worker": "w#1", "pass_key": "old", **times, **made}))
        elif collection == "graphs":
            put(store, Graph(id=f"p{n}", not_finished={"a": past}, touched_at=past, **made))
        else:
            state = ProcessState.RUNNING
            put(store, Process(id=f"p{n}", type="order", args="", state=state, started_at=past, **made))
    return IDS if collection == "decisions" else [f"p{n}" for n in range(len(IDS))]


def spoil(store: Store, collection: str, key: str, fields: dict[str, Any]) -> None:
    update = {"q": {"_id": key}, "u": {"$set": fields}}
    assert store.database.command("update", collection, updates=[update], bypassDocumentValidation=True)["n"] == 1


def changed(store: Store, collection: str, before: dict[str, Any]) -> set[str]:
    now = {one["_id"]: one for one in store.database[collection].find({"_id": {"$in": list(before)}})}
    return {key for key in before if now[key] != before[key]}


def contents(store: Store, collection: str, ids: Sequence[str]) -> dict[str, Any]:
    return {one["_id"]: one for one in store.database[collection].find({"_id": {"$in": list(ids)}})}


@pytest.mark.parametrize(("collection", "update", "changes"), CASES)
def test_one_that_a_validator_refuses(
    store: Store, stricter: Any, caplog: pytest.LogCaptureFixture, collection: str, update: Update, changes: Any
) -> None:
    ids = fill(store, collection, changes)
    spoil(store, collection, ids[BAD], {"odd": True})
    stricter(collection)
    before = contents(store, collection, ids)
    update(store, ids)
    check(store, collection, ids, before, caplog)


@pytest.mark.parametrize(("collection", "update", "changes"), GROWS)
def test_one_that_would_be_too_large(
    store: Store, caplog: pytest.LogCaptureFixture, collection: str, update: Update, changes: Any
) -> None:
    ids = fill(store, collection, changes)
    size = len(store.database[collection].find_raw_batches({"_id": ids[BAD]}).next())
    long = "x" * (16 * 1024 * 1024 - size - 13)
    spoil(store, collection, ids[BAD], {"filler": long})
    before = contents(store, collection, ids)
    update(store, ids)
    check(store, collection, ids, before, caplog)


def check(store: Store, collection: str, ids: Sequence[str], before: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All are changed; of the bad one nothing but its deadline, if it was overdue or had none that it must have."""
    assert changed(store, collection, before) | {ids[BAD]} == set(ids)
    bad = store.database[collection].find_one({"_id": ids[BAD]})
    assert bad is not None
    kept, deadline = {**bad}, bad.get("recoveryTime")
    was = {**before[ids[BAD]]}
    kept.pop("recoveryTime", None), was.pop("recoveryTime", None)
    assert kept == was
    assert deadline is not None and (deadline - store.now()).total_seconds() > POSTPONED / 2, "put off"
    (line,) = [one.getMessage() for one in caplog.records if one.name == "recovery.store.record_reading"]
    assert f" {ids[BAD]}: can't be changed: " in line and "passed over" in line


def test_alone_in_its_update(store: Store, stricter: Any, caplog: pytest.LogCaptureFixture) -> None:
    ids = fill(store, "decisions", {"state": Q})
    spoil(store, "decisions", ids[BAD], {"odd": True})
    stricter("decisions")
    before = contents(store, "decisions", ids)
    assert store.requeues.requeue_message_lost([ids[BAD]], store.now(), NEW) == []
    assert changed(store, "decisions", before) == {ids[BAD]}
    assert f" {ids[BAD]}: can't be changed: " in caplog.text


def test_what_was_written_before_it_has_its_message(store: Store, stricter: Any) -> None:
    """An update of many ends at the first that can't be written; what it had changed is found by its pass."""
    ids = fill(store, "decisions", {"state": W})[:2]
    spoil(store, "decisions", ids[1], {"odd": True})
    stricter("decisions")
    assert [one.id for one in store.requeues.timed_out(ids, NEW)] == [ids[0]]


def test_many_of_them(store: Store, stricter: Any) -> None:
    ids = fill(store, "decisions", {"state": Q})
    for key in ids[::2]:
        spoil(store, "decisions", key, {"odd": True})
    stricter("decisions")
    assert [one.id for one in store.requeues.requeue_message_lost(ids, store.now(), NEW)] == ids[1::2]


def test_what_is_no_records_fault_is_raised(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (13, 91, 11600, 112):  # not allowed, shutting down, no primary, a write conflict

        def fails(*_: Any, code: int = code, **__: Any) -> Any:
            raise OperationFailure("no", code)

        collection = store.requeues._current
        monkeypatch.setattr(type(collection), "update_many", fails)
        with pytest.raises(StoreError):
            store.task_deadlines.postpone_idle(IDS)


def test_a_heartbeat_reaches_what_can_not_be_written(store: Store, stricter: Any) -> None:
    """Its attempt lives, and keeps its claim."""
    ids = fill(store, "decisions", {"state": W, "recovery_time": store.now() + timedelta(seconds=30)})
    spoil(store, "decisions", ids[BAD], {"odd": True})
    stricter("decisions")
    assert store.decisions.extend_all("w", "add", 600) == len(ids)
    soon = store.now() + timedelta(seconds=500)
    assert store.database["decisions"].count_documents({"recoveryTime": {"$gt": soon}}) == len(ids)
