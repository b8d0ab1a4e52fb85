"""Above the store and the queue there are no errors of drivers, wherever they come up; each is one of ours, that tells
what it means, what the driver said, and nothing of a document."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from bson.errors import InvalidDocument
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    CursorNotFound,
    DocumentTooLarge,
    DuplicateKeyError,
    InvalidOperation,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteError,
    WTimeoutError,
    _OperationCancelled,
)

from recovery.errors import (
    BrokerError,
    IndexConflict,
    IndexMissing,
    RecordTooLarge,
    ServerRefused,
    ServerUnavailable,
    StoreDenied,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
)
from recovery.queue import Broker
from recovery.records import Task
from recovery.settings import Settings, load
from recovery.stack.server_process import free_port
from recovery.store import Store, schema
from recovery.store.driver_errors import ours, translated
from recovery.store.views import ranges
from tests.faults.layer import steps

SECRET = "not for the log"
TASKS = [Task(id=f"p/{n}", actor="a", args=f'["{SECRET}"]') for n in range(10)]


@pytest.fixture
def store(emptied: Settings) -> Store:
    return Store(emptied)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AutoReconnect("connection closed"), StoreUnavailable),
        (NotPrimaryError("not primary", {"code": 10107}), StoreUnavailable),
        (OperationFailure("shuts down", 91), StoreUnavailable),
        (BulkWriteError({"writeErrors": [{"code": 11600}]}), StoreUnavailable),
        (NetworkTimeout("timed out"), StoreTimeout),
        (ServerSelectionTimeoutError("no servers"), StoreTimeout),
        (WTimeoutError("no majority", 64, {"errInfo": {"wtimeout": True}}), StoreTimeout),
        (OperationFailure('not authorized on db to execute command { insert: "tasks" }', 13), StoreDenied),
        (WriteError("too large", 17419), RecordTooLarge),
        (DocumentTooLarge("17825792 bytes"), RecordTooLarge),
        (OperationFailure("error processing query: hint provided does not correspond", 2), IndexMissing),
        (OperationFailure("an index with the same name", 86), IndexConflict),
        (DuplicateKeyError("E11000", 11000), StoreRefused),
        (CursorNotFound("gone", 43), StoreRefused),
        (InvalidOperation("after close"), StoreRefused),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_what_it_means(error: Exception, kind: type[StoreError]) -> None:
    made = ours(error)
    assert type(made) is kind
    assert isinstance(made, ServerUnavailable) == (kind in (StoreUnavailable, StoreTimeout)), "as it is documented"
    assert isinstance(made, ServerRefused) == (kind is StoreDenied)
    back = pickle.loads(pickle.dumps(made))  # as Celery hands it from one process to another
    assert (type(back), str(back)) == (kind, str(made))


def test_it_says_what_the_driver_said() -> None:
    assert str(ours(AutoReconnect("connection closed"))) == "AutoReconnect: connection closed"
    details = {"code": 50, "errmsg": "operation exceeded time limit", "codeName": "MaxTimeMSExpired"}
    said = str(ours(OperationFailure("exceeded, full error: {…}", 50, details)))
    assert said == "OperationFailure: operation exceeded time limit (code 50)"
    assert SECRET not in str(ours(InvalidDocument(f"cannot encode object: {SECRET!r}")))


def test_it_says_what_is_wrong_and_not_all_that_the_driver_knows() -> None:
    """A lost primary is none of the user's rights, and nobody cancelled anything."""
    known = "Timeout: 1.5s, Topology Description: <TopologyDescription id: 1, servers: [<ServerDescription (1, 2)>]>"
    assert str(ours(ServerSelectionTimeoutError(f"No primary available for writes, {known}"))) == (
        "ServerSelectionTimeoutError: No primary available for writes"
    )
    limits = "(configured timeouts: socketTimeoutMS: 750.0ms, connectTimeoutMS: 750.0ms)"
    assert str(ours(NetworkTimeout(f"a:1: timed out {limits},b:1: timed out {limits}"))) == (
        "NetworkTimeout: a:1: timed out,b:1: timed out"
    )
    details = {"code": 11602, "errmsg": "operation was interrupted"}
    assert str(ours(OperationFailure("interrupted", 11602, details))) == (
        "OperationFailure: the primary was lost, or steps down (code 11602)"
    )
    assert "closed, because the server is away" in str(ours(_OperationCancelled("operation cancelled")))


def test_every_query_and_update_is_inside() -> None:
    outside = [name for name, (owner, step) in steps().items() if not hasattr(vars(owner)[step], "__wrapped__")]
    assert [name for name in outside if not name.startswith("_")] == []
    outside = [name for name, step in vars(Broker).items() if callable(step) and not hasattr(step, "__wrapped__")]
    assert [name for name in outside if not name.startswith("_")] == []


def test_a_refused_write_tells_nothing_of_the_document(settings: Settings) -> None:
    store = Store(settings)
    store.layout.create()
    store.database.command("collMod", schema.TASKS, validator={"actor": "another"}, validationLevel="strict")
    for tasks in (TASKS[:1], TASKS):
        with pytest.raises(StoreRefused) as refused:
            store.tasks.insert(tasks)
        assert SECRET not in str(refused.value) and "Document failed validation (code 121)" in str(refused.value)
        assert isinstance(refused.value.__cause__, PyMongoError)


def test_an_error_may_come_up_with_the_last_that_is_handed_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PAGE", 2)
    monkeypatch.setattr(ranges, "STEP", 2)
    store.tasks.insert(TASKS)
    store.catch_up(5)
    pages = store.ranges.pages(schema.TASKS, ranges.Range())
    assert len(next(pages)) == 2
    cursors = [
        one["cursor"]["cursorId"]
        for one in store.database.client.admin.aggregate([{"$currentOp": {"idleCursors": True}}])
        if one.get("type") == "idleCursor" and one["ns"] == f"{store.database.name}.{schema.TASKS}"
    ]
    store.database.command("killCursors", schema.TASKS, cursors=cursors)
    with pytest.raises(StoreRefused) as refused:
        list(pages)
    assert isinstance(refused.value.__cause__, CursorNotFound)


def test_what_whoever_asks_raises_is_his() -> None:
    """The boundary is around what is asked, not around what is done with the answers."""

    @translated
    class Counts:
        def numbers(self) -> Iterator[int]:
            yield from range(3)

    with pytest.raises(AutoReconnect):
        for _ in Counts().numbers():
            raise AutoReconnect("his own")


def test_a_server_that_is_away() -> None:
    settings = load(
        mongo_uri=f"mongodb://127.0.0.1:{free_port()}/?serverSelectionTimeoutMS=50",
        broker_url=f"redis://127.0.0.1:{free_port()}/0",
    )
    with pytest.raises(StoreUnavailable, match="ServerSelectionTimeoutError: "):
        Store(settings).now()
    with pytest.raises(BrokerError, match="ConnectionError: "):
        Broker(settings.broker_url).depths(["a"])
