"""What others named, in every field that is stored: commands show it, none raises or prints what a terminal acts on."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.collection import Collection

from recovery.cli.main import execute
from recovery.settings import Settings
from tests.fuzz.conftest import rounds
from tests.fuzz.texts import acts, nasty
from tests.world import World

FIELDS = {
    "processes": ["type", "customId", "error.kind", "error.message", "error.task", "result"],
    "decisions": [
        "actor",
        "worker",
        "outcome.error.kind",
        "outcome.error.message",
        "outcome.error.stack",
        "outcome.error.actor",
    ],
    "tasks": ["actor"],
    "interruptions": ["type", "actor", "kind", "message", "fingerprint"],
    "markers": ["type", "key", "reason", "kind", "message", "stack", "process", "actor", "task"],
    "workers": ["name", "host"],
    "actors": ["_id"],
    "processTypes": ["_id"],
    "savedSearches": ["_id", "text", "by", "reason"],
    "savedOperations": ["_id", "selection", "fromActor", "export", "by", "reason"],
}
"""Of each collection. What another program wrote is past the validators."""


def commands(process: str) -> list[list[str]]:
    of_it = ["show {}", "check {}", "check {} --json", "broken show {}", "broken show {} --json", "broken abort {}"]
    of_all = [
        "status",
        "status --json",
        "doctor",
        "broken list",
        "broken list --json",
        "actor list",
        "actor list --json",
    ]
    of_all += ["marker list", "marker list --json", "marker list --cleared", "marker show order --json"]
    of_all += ["search list", "search list --json", "search remove nosuch", "find @nosuch"]
    of_all += ["operation saved", "operation saved --json", "operation forget nosuch"]
    of_all += ["process-type list", "broken list --type nosuch", "actor show nosuch", "process-type show nosuch"]
    return [command.format(process).split() for command in [*of_all, *of_it]]


@rounds(ci=1, soak=100)
def test_names_are_shown_as_they_are(
    rounds: int, seed: int, emptied: Settings, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emptied.environment().items():
        monkeypatch.setenv(name, value)
    draw, world = random.Random(seed), World(emptied)
    # It answers: to ask each time takes most of the time.
    monkeypatch.setattr("recovery.store.check_server", lambda *_, **__: None)
    # Nobody scans here, and what Java there is doesn't change.
    monkeypatch.setattr("recovery.health.doctor.CHECKS", doctors())

    @world.app.process(markers=True)
    def order(kind: str, text: str) -> None:
        raise type(kind, (Exception,), {})(text)

    for _ in range(rounds):
        for collection in ("workers", "actors", "processTypes", "markers", "savedSearches", "savedOperations"):
            world.store.database[collection].delete_many({})
        world._told = 0
        started = world.start(order, nasty(draw).replace("\0", ""), nasty(draw), custom_id=nasty(draw)[:500])
        world.pump()
        spoil(world, draw)
        for command in commands(started):
            code = execute(command)
            out, err = capfd.readouterr()
            assert code in (0, 1, 2), (command, err)
            assert acts(out + err) is None, (command, acts(out + err))
            if command[:2] not in (["broken", "show"], ["marker", "show"]):  # which shows stacks, as they are
                assert "\nFORGED" not in out + err, command
            if "--json" in command and code != 2:
                json.loads(out)


def doctors() -> Any:
    from recovery.health import doctor

    return tuple(one for one in doctor.CHECKS if one[0] not in ("sweeps", "writes", "nudges", "beat"))


def spoil(world: World, draw: random.Random) -> None:
    database = world.store.database
    alive = {"pidStarted": 1, "paused": [], "recoveryTime": datetime.now(UTC) + timedelta(minutes=30)}
    workers: dict[str, Any] = {"_id": nasty(draw), "name": nasty(draw), "host": "", "pid": 1, "queues": [nasty(draw)]}
    put(database["workers"], workers | alive)
    some = {"kind": "collect", "selection": "state:broken", "export": "/", "fromActor": "one", "by": "", "reason": ""}
    put(database["savedOperations"], {"_id": "some", **some, "version": 0})
    put(database["savedSearches"], {"_id": "some", "text": "state:broken", "by": "", "reason": "", "version": 0})
    for collection, fields in FIELDS.items():
        for field in fields:
            if draw.random() < 0.5:
                continue
            if field == "_id":
                put(database[collection], {"_id": nasty(draw)})
            else:
                found = {field: {"$exists": True}}
                database[collection].update_one(found, {"$set": {field: nasty(draw)}}, bypass_document_validation=True)


def put(collection: Collection[dict[str, Any]], document: dict[str, Any]) -> None:
    """In the place of what is there."""
    collection.replace_one({"_id": document["_id"]}, document, upsert=True, bypass_document_validation=True)
