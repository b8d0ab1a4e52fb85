"""A task for a name that no actor can have is damage: a worker pushes nothing into the list of that name, and says why.
A database that was filled before there were validators may have such tasks.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.health.process_check import look
from recovery.records.ids import new_pass, new_process_id
from recovery.rules import Rule
from recovery.store import schema
from tests.world import World

STRANGE = ["celery", "recovery.apply.0", "orders of another", "_kombu.binding.x"]


def insert(world: World, collection: str, document: dict[str, Any]) -> None:
    world.store.database.command("insert", collection, documents=[document], bypassDocumentValidation=True)


def check_nothing_is_pushed(world: World, name: str, process_id: str) -> None:
    world.scan()
    world.scan()
    assert not world.redis.exists(name)
    found = [one for one in look(world.app.resources, process_id).findings if one.rule is Rule.RECORD_DAMAGED]
    assert found and all("which no actor can be called" in one.evidence for one in found)


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("state", ["queued", "delayed"])
def test_an_overdue_task(world: World, name: str, state: str) -> None:
    process_id, past = new_process_id(), world.store.now() - timedelta(minutes=1)
    process = {"_id": process_id, "type": "order", "args": "[[],{}]", "state": "broken", "epoch": 0}
    insert(world, schema.PROCESSES, process)
    key = f"{process_id}/start"
    live = {"state": state, "queuedAt": past, "recoveryTime": past, "pass": new_pass(), "epoch": 0}
    insert(world, schema.TASKS, {"_id": key, "actor": name, "args": "[[],{}]"})
    insert(world, schema.DECISIONS, {"_id": key, "actor": name, **live})
    check_nothing_is_pushed(world, name, process_id)
    overdue = {"recoveryTime": {"$lte": world.store.now()}}
    assert world.store.database[schema.DECISIONS].count_documents(overdue) == 0, "it is postponed"


@pytest.mark.parametrize("name", STRANGE)
def test_a_process_that_is_not_registered(world: World, name: str) -> None:
    process_id, past = new_process_id(), world.store.now() - timedelta(minutes=1)
    started = {"type": name, "args": "[[],{}]", "state": "running", "startedAt": past, "recoveryTime": past}
    insert(world, schema.PROCESSES, {"_id": process_id, **started})
    check_nothing_is_pushed(world, name, process_id)


@pytest.mark.parametrize("name", STRANGE)
def test_a_child_of_a_task_that_ended(world: World, name: str) -> None:
    """By `finish` a client can't write it, and by an insert it can."""
    world.app.process("order")(lambda: None)
    process_id, past = world.start("order"), world.store.now() - timedelta(minutes=1)
    child = {"_id": "c" * 16, "actor": name, "args": "[[],{}]"}
    outcome = {"pass": new_pass(), "value": "null", "finishedAt": past}
    ended = {"state": "finished", "outcome": outcome, "children": [child], "recoveryTime": past, "epoch": 0}
    world.store.database[schema.DECISIONS].delete_one({"_id": f"{process_id}/start"})
    insert(world, schema.DECISIONS, {"_id": f"{process_id}/start", "actor": "order", **ended})
    check_nothing_is_pushed(world, name, process_id)
