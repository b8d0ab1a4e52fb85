"""What was done to a process against what the rules say of it: all on the diagonal, and nothing on healthy ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from recovery import Settings
from recovery.demo.app import app as demo_app
from recovery.engine import Slot
from recovery.repair import look_around
from recovery.rules import Rule, judge_process
from recovery.wfformat import example_path, load, workload
from tests.failure_map.faults import FAULTS, HOUR, begin, make_app
from tests.wfformat.test_loader import published_files
from tests.world import World, arguments, by_message_only

SEED = 11


def settle(world: World) -> None:
    """Nobody has been at work for an hour: rules conclude from what is absent only then."""
    database, past = world.store.database, world.store.now() - HOUR
    database["graphs"].update_many({}, {"$set": {"touchedAt": past}})
    database["processes"].update_many({}, {"$set": {"startedAt": past}})
    database["decisions"].update_many({"state": "finished"}, {"$set": {"outcome.finishedAt": past}})
    applied = {"state": "finished", "recoveryTime": {"$exists": True}}
    assert database["decisions"].count_documents(applied) == 0, "all is applied"


def world_of(settings: Settings) -> World:
    return World(settings, message_timeout=300.0, apply_timeout=5.0, idle_timeout=600.0)


def test_confusion_table(emptied: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    table: dict[str, tuple[Rule, Counter[Rule]]] = {}
    for fault in FAULTS:
        world = world_of(emptied)
        world.redis.flushdb()
        for name in world.store.database.list_collection_names():
            world.store.database[name].delete_many({})
        make_app(world)
        broken = begin(world, fault)
        fault.make(broken)
        lost = [document["_id"] for document in broken.db["workers"].find({"_id": "gone"})]
        around = look_around(world.app.resources, queues=world.app.actors, lost_workers=lost)
        (snapshot,) = world.store.snapshots([broken.id])
        table[fault.make.__name__] = fault.rule, Counter(f.rule for f in judge_process(snapshot, around))
    with capsys.disabled():
        print("\n\nfault made                  rules found")
        for name, (rule, seen) in table.items():
            mark = "" if set(seen) == {rule} else f"   <- expected {rule}"
            print(f"{name:27} {', '.join(f'{found} {count}' for found, count in seen.items())}{mark}")
    assert all(set(seen) == {rule} for rule, seen in table.values())


@pytest.mark.thorough
@pytest.mark.parametrize("healthy", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_nothing_is_found_on_healthy_processes(emptied: Settings, healthy: int) -> None:
    """Live processes of published workflows, each brought on by some random number of its tasks."""
    world = world_of(emptied)
    world.app.actors = demo_app.actors
    world.tell()
    chance = random.Random(SEED)
    workflows = [load(path) for path in published_files() or [example_path()]]
    # All but the largest whole: what is looked at are shapes, and a thousand of the largest take minutes to make.
    small = sorted(workflows, key=lambda workflow: len(workflow.tasks))[: max(1, len(workflows) - 3)]
    chosen = [small[n % len(small)] for n in range(healthy - len(workflows) * 5)] + workflows * 5
    started = list(workload.start(world.app.resources, chosen, healthy, 0.0))
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "healthy#1")
    with by_message_only():
        while message := world.pop(["workflow"]):
            slot.run(world.app.actors["workflow"], *arguments(message))
        for _ in range(chance.randrange(healthy, 2 * healthy)):
            if message := world.pop(["workflow_task"]):
                slot.run(world.app.actors["workflow_task"], *arguments(message))
    world.app.outbox.flush()
    world.store.queues.polled(dict.fromkeys(world.app.actors))
    settle(world)
    around = look_around(world.app.resources, queues=world.app.actors)
    findings = []
    ids = [one.id for one in started]
    for first in range(0, len(ids), 100):
        findings += [
            f for snapshot in world.store.snapshots(ids[first : first + 100]) for f in judge_process(snapshot, around)
        ]
    assert len(ids) == healthy
    assert findings == [], f"seed {SEED}"
