"""Dates that MongoDB keeps and Python has not, in any field: nobody else's records are held up, and all who read such a
record still answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import DatetimeMS
from typer.testing import CliRunner

from recovery.cli.main import app as command
from recovery.engine import Keys, declare_schedules
from recovery.health import examine, look
from recovery.limits import FAR_OFF
from recovery.records import ProcessState
from recovery.rules import Rule
from recovery.scan import ScheduleScanner
from recovery.store import schema
from recovery.store.views.overview import Overview
from tests.health.conftest import worker
from tests.scan.making import SCANNERS, scanner
from tests.store.writing import is_close
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.thorough

FIELDS = [
    *(("decisions", name) for name in ("recoveryTime", "queuedAt", "enqueuedAt", "claimedAt", "eta")),
    *(("graphs", name) for name in ("recoveryTime", "touchedAt", "notFinished.start")),
    *(("processes", name) for name in ("recoveryTime", "startedAt", "timedOutAt")),
    *(("workers", name) for name in ("recoveryTime", "startedAt")),
    *(("queues", name) for name in ("polledAt", "takenQueuedAt", "foundEmptyAt", "seenEmptyAt", "lostBefore")),
]
MOMENTS = {
    "year 273792727": DatetimeMS(8_640_000_000_000_000_000),
    "before all years": DatetimeMS(-8_640_000_000_000_000_000),
    "last": DatetimeMS(2**63 - 1),
    "first": DatetimeMS(-(2**63)),
}
# Each field with one of the moments, by turns; and each with all of them in a long run.
CASES = [
    pytest.param(
        *where, moment, id=f"{'.'.join(where)}-{moment}", marks=[pytest.mark.soak] if (row + column) % 4 else []
    )
    for row, where in enumerate(FIELDS)
    for column, moment in enumerate(MOMENTS)
]


@pytest.fixture
def pair(world: World) -> Iterator[tuple[str, str]]:
    """Two processes whose messages are lost, of a type with all the limits there are; both are overdue."""
    limits: dict[str, Any] = {"task_timeout": 7200.0, "process_timeout": 7200.0}
    world.app.process("order", **limits, force_finish_after_task_timeout=True)(lambda: "done")
    world.tell()
    ids = world.start("order"), world.start("order")
    past = world.store.now() - timedelta(hours=1)
    times = {"processes": ["startedAt"], "graphs": ["touchedAt"], "decisions": ["enqueuedAt", "queuedAt"]}
    for name, fields in times.items():
        values = dict.fromkeys([*fields, "recoveryTime"], past)
        world.store.database[name].update_many({"_id": {"$exists": True}}, {"$set": values})
    world.store.workers.beat(worker("far"), 60)
    world.store.queues.polled({"order": past})
    for ago in (2, 1):
        world.store.queues.seen_empty(["order"], past - timedelta(seconds=ago), timedelta())
    world.store.queues.lost(["order"], past - timedelta(seconds=1))
    world.lose_messages()
    yield ids


def spoil(world: World, process_id: str, collection: str, field: str, moment: Any) -> None:
    key = {"decisions": f"{process_id}/start", "workers": "far:1", "queues": "order"}.get(collection, process_id)
    changed = world.store.database[collection].update_one({"_id": key}, {"$set": {field: moment}})
    assert changed.modified_count == 1


@pytest.mark.parametrize(("collection", "field", "moment"), CASES)
def test_the_others_go_on(
    world: World, pair: tuple[str, str], collection: str, field: str, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt, sound = pair
    spoil(world, spoilt, collection, field, MOMENTS[moment])
    scanners = [scanner(world, name) for name in SCANNERS]

    def is_done() -> bool:
        for one in scanners:
            result = one.run_once()
            assert result.error is None, result
        world.pump()
        # While nobody was seen to poll, a message is waited for, for up to 30 times its timeout: not in a test.
        waits, past = {"_id": f"{sound}/start", "state": "queued"}, world.store.now() - timedelta(hours=1)
        world.store.database["decisions"].update_one(waits, {"$set": {"recoveryTime": past}})
        return world.process(sound).state is ProcessState.FINISHED

    wait_until(is_done, 10, "the end of the sound one")
    assert "others go on" not in caplog.text and "by hand" not in caplog.text


@pytest.mark.parametrize(("collection", "field", "moment"), CASES)
def test_whoever_looks_is_answered(
    world: World, pair: tuple[str, str], collection: str, field: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(world, pair[0], collection, field, MOMENTS[moment])
    assert look(world.app.resources, pair[0]).snapshot.process is not None
    assert [check for check in examine(world.app.resources) if "could not be asked" in check.found] == []
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    for arguments in (["show", pair[0]], ["status"], ["status", "--json"], ["actor", "list"]):
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code == 0, (arguments, done.exception)
    for arguments in (["check", pair[0]], ["check", pair[0], "--json"], ["check", pair[0], "--repair"]):
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code in (0, 1) and isinstance(done.exception, SystemExit | None), (arguments, done.exception)


@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
def test_a_schedule_at_an_end_of_the_calendar(
    world: World, moment: datetime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks for it is answered, and its scanner can work with it."""
    at, zones = moment.replace(tzinfo=UTC, microsecond=0), {"east": "Asia/Tokyo", "west": "Pacific/Honolulu"}
    for name, zone in zones.items():
        world.app.process(name, schedule="30 2 * * *", time_zone=zone, jitter="1h")(lambda: "done")
    world.tell()
    declare_schedules(world.app.resources, world.app.actors, world.app.schedules)
    monkeypatch.setenv("COLUMNS", "300")
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    due = {"$set": {"nextSlot": at, "recoveryTime": world.store.now()}}
    assert world.store.database["schedules"].update_many({}, due).modified_count == 2
    for name in zones:
        for arguments in (["next", name], ["next", name, "--json"], ["list"], ["show", name], ["show", name, "--json"]):
            done = CliRunner().invoke(command, ["schedule", *arguments])
            assert done.exit_code == 0 and f"{at:%Y-%m-%d}" in done.output, (arguments, done.exception, done.output)
    assert ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once().error is None
    assert "can't be processed" not in caplog.text


@pytest.mark.parametrize("idle", [1e12, 1e15, 1e30, 10**18])
def test_an_idle_timeout_that_an_older_version_took(world: World, pair: tuple[str, str], idle: float) -> None:
    """Its process and graph are looked at within ten years, and the others of its page with them."""
    spoilt, sound = pair
    for name in ("processes", "graphs"):
        world.store.database[name].update_one({"_id": spoilt}, {"$set": {"idleTimeout": idle}})

    def both_have_ended() -> bool:
        world.scan()
        world.pump()
        return world.process(sound).state is world.process(spoilt).state is ProcessState.FINISHED

    wait_until(both_have_ended, 5, "a look, and one by which it is believed that the queue is empty")


@pytest.mark.parametrize("seconds", [None, FAR_OFF + 60.0, 1e11, 1e15])
def test_a_deadline_that_nobody_lives_to_see_is_as_good_as_none(
    world: World, pair: tuple[str, str], seconds: float | None
) -> None:
    """Counted by the doctor, found when the process is looked at, and now afterwards."""
    process_id, store = pair[0], world.store
    keys = {"processes": process_id, "decisions": f"{process_id}/start"}
    now = store.now()
    base = round(now.timestamp() * 1000)
    far: Any = None if seconds is None else DatetimeMS(base + round(seconds * 1000))
    for name, key in keys.items():
        store.database.command(
            "update", name, updates=[{"q": {"_id": key}, "u": {"$set": {"recoveryTime": far}}}],
            bypassDocumentValidation=True,
        )  # fmt: skip
    (check,) = (one for one in examine(world.app.resources) if one.name == "deadlines")
    assert "1 decisions, 1 processes" in check.found
    result = scanner(world, "graphs").run_once()
    assert result.repaired[Rule.DEADLINE_MISSING] == 2
    for name, key in keys.items():
        found = store.database[name].find_one({"_id": key})
        assert found is not None and now <= found["recoveryTime"] <= store.now(), name


def test_a_graph_that_nobody_would_look_at(world: World, pair: tuple[str, str]) -> None:
    spoil(world, pair[0], "graphs", "recoveryTime", MOMENTS["year 273792727"])
    assert world.store.unreachable_deadlines.count() == {"decisions": 0, "graphs": 1, "processes": 0}
    world.redis.lpush("order", "a message that is still to come")  # else its message is lost, which moves the graph too
    assert scanner(world, "processes").run_once().repaired == {Rule.DEADLINE_MISSING: 1}
    assert world.store.unreachable_deadlines.count() == {"decisions": 0, "graphs": 0, "processes": 0}


def test_a_delay_of_ten_years_is_not_far(world: World, pair: tuple[str, str]) -> None:
    now, key = world.store.now(), {"_id": f"{pair[0]}/start"}
    eta = now + timedelta(seconds=FAR_OFF - 60)
    delayed = {"state": "delayed", "eta": eta, "recoveryTime": eta}
    world.store.database["decisions"].update_one(key, {"$set": delayed})
    assert world.store.unreachable_deadlines.count()["decisions"] == 0
    assert scanner(world, "graphs").run_once().repaired[Rule.DEADLINE_MISSING] == 0
    far = MOMENTS["year 273792727"]
    for its_eta, expected in ((eta, eta), (far, now)):
        world.store.database["decisions"].update_one(key, {"$set": {"eta": its_eta, "recoveryTime": far}})
        assert world.store.unreachable_deadlines.stamp([key["_id"], pair[1]]) == 1
        found = world.store.database["decisions"].find_one(key)
        assert found is not None and is_close(found["recoveryTime"], expected)


def test_what_is_at_rest_is_not_counted(world: World, pair: tuple[str, str]) -> None:
    far = MOMENTS["year 273792727"]
    world.store.database["processes"].update_many({}, {"$set": {"state": "finished", "recoveryTime": far}})
    world.store.database["graphs"].update_many({}, {"$set": {"notFinished": {}, "recoveryTime": far}})
    world.store.database["decisions"].update_many({}, {"$set": {"state": "finished", "recoveryTime": far}})
    assert set(world.store.unreachable_deadlines.count().values()) == {0}
    assert world.store.unreachable_deadlines.stamp([*pair, f"{pair[0]}/start"]) == 0
    assert Overview(world.store.database).without_deadline() == {
        schema.DECISIONS: 0, schema.GRAPHS: 0, schema.PROCESSES: 0
    }  # fmt: skip
