"""An apply that always fails, since another program spoilt a record: told in a line, tried ever more rarely, and no
error of the attempt whose end was accepted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.errors import BulkWriteError

from recovery.engine import Outbox, Slot, isolation, read_each
from recovery.engine.run.slot import Result
from recovery.log_lines import Seldom
from recovery.records import DecisionState
from recovery.repair import Repairer
from recovery.scan import DecisionScanner, rescue
from recovery.store.driver_errors import ours
from tests.counting import failed_steps
from tests.store.writing import is_about
from tests.world import World, arguments

SECRET = "a secret argument"


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told in other tests is no reason not to tell it here."""
    monkeypatch.setattr(isolation, "_told", Seldom(isolation._told._log, isolation.TELL_EVERY))


@pytest.fixture
def started(world: World) -> str:
    """A process whose start task is queued; its id."""
    world.app.process("order", worker_timeout=600)(lambda _: "done")
    return world.start("order", SECRET)


def spoil_graph(world: World, process_id: str) -> None:
    set_ = {"q": {"_id": process_id}, "u": {"$set": {"finished": 3}}}
    world.store.database.command("update", "graphs", updates=[set_], bypassDocumentValidation=True)


def finish(world: World, process_id: str) -> Result:
    """Run the start task, whose end can't be applied."""
    spoil_graph(world, process_id)
    message = world.pop(["order"])
    assert message is not None
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    result = slot.run(world.app.actors["order"], *arguments(message))
    world.flush()
    return result


def stored(world: World, process_id: str) -> dict[str, Any]:
    found = world.store.database["decisions"].find_one({"_id": f"{process_id}/start"})
    assert found is not None
    return found


def overdue(world: World, process_id: str, finished: timedelta, **fields: Any) -> None:
    now = world.store.now()
    fields = {"outcome.finishedAt": now - finished, "recoveryTime": now - timedelta(seconds=1), **fields}
    change = {"q": {"_id": f"{process_id}/start"}, "u": {"$set": fields}}
    world.store.database.command("update", "decisions", updates=[change], bypassDocumentValidation=True)


def lines(caplog: pytest.LogCaptureFixture, process_id: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if f"{process_id}/start" in record.getMessage()]


def test_it_is_no_error_of_the_attempt(world: World, started: str, caplog: pytest.LogCaptureFixture) -> None:
    before = failed_steps()
    assert finish(world, started) is Result.FINISHED
    (line,) = lines(caplog, started)
    assert line.startswith(f"{started}/start can't be processed: OperationFailure: "), line
    assert SECRET not in caplog.text and "Traceback" not in caplog.text and "\n" not in line
    assert failed_steps() == before + 1
    decision = stored(world, started)
    assert decision["state"] == "finished" and decision["recoveryTime"] is not None


@pytest.mark.parametrize(("finished", "wait"), [(0, 0.3), (60, 60), (86_400, 300), (-3600, 0.3)])
def test_it_is_tried_ever_more_rarely(
    world: World, started: str, finished: int, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    finish(world, started)
    caplog.clear()
    overdue(world, started, timedelta(seconds=finished))
    world.tell()
    scanner, before = DecisionScanner(world.app.resources, world.app.outbox), failed_steps()
    assert scanner.run_once().looked_at == 1
    decision = stored(world, started)
    assert is_about(decision["recoveryTime"], world.store.now(), wait)
    assert "worker" not in decision
    assert failed_steps() == before + 1
    if wait > 1:
        assert scanner.run_once().looked_at == 0, "not at each nudge"
    assert lines(caplog, started) == [], "told before, a moment ago"


def test_a_line_tells_nothing_of_the_documents() -> None:
    refused = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate\nkey", "op": {"args": SECRET}}
    line = isolation.in_a_line(ours(BulkWriteError({"writeErrors": [refused]})))
    assert line == "BulkWriteError: E11000 duplicate key (code 11000)"


def test_it_goes_on_once_somebody_repaired_it(world: World, started: str) -> None:
    finish(world, started)
    repaired = {"$set": {"finished": []}}
    world.store.database["graphs"].update_one({"_id": started}, repaired)
    overdue(world, started, timedelta())
    assert world.bring_to_end(started).result == '"done"'


ODD: list[dict[str, Any]] = [
    {"outcome.finishedAt": "yesterday"},
    {"outcome": "a text"},
    {"outcome": {}},
    {"children": 5},
    {"$odd": 1},
    {"outcome.finishedAt": DatetimeMS(-(2**63))},
    {"outcome.finishedAt": DatetimeMS(2**63 - 1)},
    {"outcome.finishedAt": [{"a": 1}]},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_where_its_own_record_is_damaged(world: World, started: str, odd: dict[str, Any]) -> None:
    finish(world, started)
    if "$odd" in odd:
        whole = stored(world, started) | odd | {"recoveryTime": world.store.now() - timedelta(seconds=1)}
        world.store.database["decisions"].delete_one({"_id": whole["_id"]})
        world.store.database.command("insert", "decisions", documents=[whole], bypassDocumentValidation=True)
    elif "outcome" in odd:
        overdue(world, started, timedelta())
        change = {"q": {"_id": f"{started}/start"}, "u": {"$set": odd}}
        world.store.database.command("update", "decisions", updates=[change], bypassDocumentValidation=True)
    else:
        overdue(world, started, timedelta(), **odd)
    assert world.store.decisions.postpone_apply(f"{started}/start", 10)
    deadline: datetime = stored(world, started)["recoveryTime"]
    assert timedelta(seconds=5) < deadline - world.store.now() < timedelta(seconds=310)
    assert not world.store.decisions.postpone_apply(f"{started}/start", 10), "once for all that look at it"


@pytest.mark.parametrize("state", [state for state in DecisionState if state != "finished"])
def test_what_was_restarted_since_is_left_alone(world: World, started: str, state: DecisionState) -> None:
    finish(world, started)
    overdue(world, started, timedelta(), state=state.value)
    assert not world.store.decisions.postpone_apply(f"{started}/start", 10)


def test_a_lost_worker_is_forgotten_for_all_that(world: World, started: str) -> None:
    """Else each nudge would find what it finished, and try once more."""
    finish(world, started)
    repairer, before = Repairer(world.app.resources, world.app.outbox), failed_steps()
    for _ in range(3):
        rescue(world.app.resources, repairer, ["w"])
    assert failed_steps() == before + 1


def test_the_appliers_own_thread_tells_it_too(world: World, started: str, caplog: pytest.LogCaptureFixture) -> None:
    other = world.start("order", "another")
    for process_id in (started, other):
        finish(world, process_id)
    caplog.clear()
    isolation._told = Seldom(isolation._told._log)
    outbox = Outbox(world.app.resources)
    for process_id in (started, other):
        (ended,) = world_ended(world, process_id)
        outbox.put([ended])
    outbox.flush()
    assert len(lines(caplog, started)) == len(lines(caplog, other)) == 1
    assert SECRET not in caplog.text and "Traceback" not in caplog.text


def world_ended(world: World, process_id: str) -> list[Any]:
    (ended,) = read_each(world.store, [f"{process_id}/start"], lambda *_: None)
    return [type(ended)(ended.task, ended.decision, successor="next")]  # so that it waits
