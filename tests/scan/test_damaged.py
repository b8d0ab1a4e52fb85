"""Records that can't be read, which another program wrote past the validators: told, and in nobody's way."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from recovery.log_lines import Seldom
from recovery.records import Decision, DecisionState
from recovery.records.ids import child_task_id, record_id
from recovery.rules import Rule
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, Scanner
from recovery.store import definitions, record_reading
from tests.queues import polled_and_empty
from tests.store.writing import put
from tests.world import World

DAMAGE: list[tuple[type[Scanner[Any]], str, dict[str, Any]]] = [
    (DecisionScanner, "decisions", {"state": "done"}),
    (DecisionScanner, "decisions", {"state": 7}),
    (GraphScanner, "graphs", {"finished": 3}),
    (GraphScanner, "decisions", {"outcome": "a text"}),
    (GraphScanner, "decisions", {"children": [{"_id": "x"}]}),
    (DecisionScanner, "decisions", {"queuedAt": "yesterday"}),
    (DecisionScanner, "decisions", {"state": "finished", "outcome": {}}),
    (DecisionScanner, "decisions", {"state": "working", "timeouts": "many"}),
    (ProcessScanner, "processes", {"state": None}),
    (ProcessScanner, "processes", {"state": "over"}),
]


@pytest.mark.parametrize(("kind", "collection", "damage"), DAMAGE, ids=lambda value: str(value)[:40])
def test_one_record_that_can_not_be_read(
    world: World, kind: type[Scanner[Any]], collection: str, damage: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    world.app.process("order")(lambda: "done")
    damaged, sound = world.start("order"), world.start("order")
    database, past = world.store.database, world.store.now() - timedelta(days=1)
    key = damaged if collection != "decisions" else f"{damaged}/start"
    database.command(
        "update", collection, updates=[{"q": {"_id": key}, "u": {"$set": damage}}], bypassDocumentValidation=True
    )
    for name in ("processes", "graphs", "decisions"):
        database.command(
            "update", name, updates=[{"q": {}, "u": {"$set": {"recoveryTime": past}}, "multi": True}],
            bypassDocumentValidation=True,
        )  # fmt: skip
    world.tell()
    world.store.queues.polled(dict.fromkeys(world.app.actors))
    scanner = kind(world.app.resources, world.app.outbox)
    with caplog.at_level(logging.INFO):
        result = scanner.run_once()
    assert result.error is None, result
    assert f" {key}: it" in caplog.text, "it is named"
    assert "RECORD_DAMAGED" in caplog.text or "by hand" in caplog.text
    caplog.clear()
    assert scanner.run_once().error is None
    assert key not in caplog.text, "it is mended, or its deadline was moved"
    looked_at = world.store.database[scanner.name].find_one({"_id": {"$regex": f"^{sound}"}})
    assert looked_at is not None and looked_at["recoveryTime"] > past, "the sound one was looked at"


def test_many_do_not_hide_what_is_sound(world: World) -> None:
    past = world.store.now() - timedelta(days=1)
    world.app.actor("add")(lambda: None)
    world.tell()
    spoilt = [
        {"_id": f"p/{n}", "actor": "add", "state": "queued", "children": 7, "recoveryTime": past} for n in range(5)
    ]
    world.store.database.command("insert", "decisions", documents=spoilt, bypassDocumentValidation=True)
    late = past + timedelta(hours=1)
    put(world.store, Decision(id="p/sound", actor="add", state=DecisionState.WORKING, worker="w", recovery_time=late))
    assert DecisionScanner(world.app.resources, world.app.outbox).run_once().repaired == {Rule.WORK_TIMEOUT: 1}


def test_one_that_can_not_be_written_hides_no_lost_message(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody made a validator stricter, and one record is as large as a record may be: all others are requeued. So is
    what the validator would refuse, where it is requeued by constants, as almost all are."""
    monkeypatch.setattr(record_reading, "_seldom", Seldom(logging.getLogger("recovery.store.record_reading"), 300.0))
    world.app.actor("add")(lambda: None)
    world.tell()
    database, past = world.store.database, world.store.now() - timedelta(days=1)
    keys = sorted(record_id("0" * 32, child_task_id("start", 0, n)) for n in range(53))
    refused, like_others, large = keys[0], keys[11], keys[22]  # an update of many takes them in this order
    sound = [key for key in keys if key not in (refused, like_others, large)]
    for key in (*sound, refused, like_others, large):
        queued = {"state": DecisionState.QUEUED, "pass_key": "a", "queued_at": past, "recovery_time": past}
        put(world.store, Decision(id=key, actor="add", losses=9 if key == refused else None, **queued))
    update = {"q": {"_id": {"$in": [refused, like_others]}}, "u": {"$set": {"odd": True}}, "multi": True}
    database.command("update", "decisions", updates=[update], bypassDocumentValidation=True)
    size = len(database["decisions"].find_raw_batches({"_id": large}).next())
    database["decisions"].update_one({"_id": large}, {"$set": {"filler": "x" * (16 * 1024 * 1024 - size - 13)}})
    database.command("collMod", "decisions", validator={"odd": {"$ne": True}}, validationLevel="strict")
    polled_and_empty(world.store, "add")
    try:
        result = DecisionScanner(world.app.resources, world.app.outbox).run_once()
    finally:
        database.command(
            "collMod", "decisions", validator=definitions.VALIDATORS["decisions"], validationLevel=definitions.LEVEL
        )
    assert (result.error, result.repaired) == (None, {Rule.MESSAGE_LOST: len(sound) + 1})
    assert world.redis.llen("add") == len(sound) + 1
    for key in (refused, large):
        assert f"Decision {key}: can't be changed: " in caplog.text
        bad = database["decisions"].find_one({"_id": key}, {"recoveryTime": True})
        assert bad is not None and bad["recoveryTime"] > world.store.now(), "put off"
