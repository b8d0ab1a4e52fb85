"""What a repair says of each process is what was done to it, be others first at some, be damage where no rule looks, be
more overdue than an actor's `requeue_rate` lets pass."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recovery.engine import rebuild_graphs
from recovery.operations.kinds import RepairAll, repairing
from recovery.records import ActorPreferences, OperationResult, ProcessState, ResultState
from recovery.records.ids import new_process_id
from recovery.repair import Diagnosis, RequeuePace, diagnose
from recovery.rules import Finding, Rule, Surroundings
from recovery.settings import Settings
from tests.operations.ordering import Ordering, adds_up
from tests.sweep import shapes
from tests.sweep.database import Database


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def repaired(world: Ordering, **more: object) -> dict[str, OperationResult]:
    world.store.catch_up(10)
    done = world.bring_on(world.ask("repair", apply=True, **more))
    adds_up(world, done)
    return world.results(done)


def overdue(world: Ordering, count: int) -> list[str]:
    """Processes of which a task is at work, and past its deadline."""
    started = sorted(world.orders(count))
    past = {"state": "working", "worker": "gone", "recoveryTime": world.store.now() - timedelta(hours=1)}
    world.store.database["decisions"].update_many({"_id": {"$regex": "/start$"}}, {"$set": past})
    return started


def test_damage_that_only_a_thorough_look_finds_is_seen_again(world: Ordering) -> None:
    """What is made of another record is repaired; what is not is told; and nobody breaks a process who knows of it."""
    database = Database(world.settings)
    known, unknown, circle = (database.add(one) for one in (shapes.running, shapes.running, shapes.cycle))
    for process_id, task in ((known, shapes.MERGE), (unknown, "start"), (circle, "start")):
        update = {"q": {"_id": f"{process_id}/{task}"}, "u": {"$set": {"args": [1]}}}
        done = database.store.database.command("update", "tasks", updates=[update], bypassDocumentValidation=True)
        assert done["nModified"] == 1
    results = repaired(world, thorough=True)
    assert {one.rules for one in results.values()} == {(Rule.RECORD_DAMAGED.value,)}
    assert results[known].state is ResultState.DONE and results[known].repaired == {Rule.RECORD_DAMAGED.value: 1}
    for process_id in (unknown, circle):
        result = results[process_id]
        assert result.state is ResultState.NOTHING and not result.repaired
        assert f"left: RECORD_DAMAGED (Task {process_id}/start: its args is an array" in (result.error or "")
        assert world.process(process_id).state is ProcessState.RUNNING


@pytest.mark.parametrize("first", [0, 1])
def test_what_others_made_is_not_told_as_ours(world: Ordering, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Of two graphs that are gone somebody else makes one, after it was seen to be gone."""
    database = Database(world.settings)
    ids = sorted(database.add(shapes.graph_missing) for _ in range(2))

    def late(*about: object) -> Diagnosis:
        found = diagnose(*about)  # type: ignore[arg-type]
        rebuild_graphs(world.app.resources, [ids[first]])
        return found

    monkeypatch.setattr(repairing, "diagnose", late)
    results = repaired(world)
    ours, others = results[ids[1 - first]], results[ids[first]]
    assert ours.state is ResultState.DONE and ours.repaired["GRAPH_MISSING"] == 1
    assert "GRAPH_MISSING" not in others.repaired


@pytest.mark.parametrize("first", [0, 1])
def test_of_what_moved_on_nothing_is_told(world: Ordering, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Of two tasks whose workers are silent one beats, after it was seen to be overdue."""
    ids, diagnosed = overdue(world, 2), repairing.diagnose_tasks
    beats = {"$set": {"recoveryTime": world.store.now() + timedelta(minutes=1)}}

    def late(resources: object, results: Sequence[OperationResult]) -> Diagnosis:
        found = diagnosed(resources, results)  # type: ignore[arg-type]
        world.store.database["decisions"].update_one({"_id": f"{ids[first]}/start"}, beats)
        return found

    monkeypatch.setattr(repairing, "diagnose_tasks", late)
    results = repaired(world)
    assert results[ids[1 - first]].repaired == {"WORK_TIMEOUT": 1}
    assert (results[ids[first]].state, results[ids[first]].repaired) == (ResultState.NOTHING, {})


def test_a_requeue_rate_holds_over_all_pages(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it postpones is told, has its deadline, and is done by the scanners."""
    monkeypatch.setattr(RepairAll, "page", 1)
    ids = overdue(world, 12)
    world.store.actors.override("order", {"requeue_rate": 1.0})
    began = time.monotonic()
    results = repaired(world)
    most = 2 + time.monotonic() - began
    done = [one for one in ids if results[one].state is ResultState.DONE]
    assert 1 <= len(done) <= most < len(ids), "an interval's worth, and what the time brought"
    for process_id in set(ids).difference(done):
        result = results[process_id]
        assert result.state is ResultState.NOTHING
        assert "1 task of order postponed by its requeue_rate: scanners requeue them" in (result.error or "")
        (decision,) = world.decisions(process_id).values()
        assert decision.recovery_time is not None and decision.state == "working"


def test_who_is_looked_at_again_waits_no_longer_for_his_turn(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a first look postponed is still lost at the second, which the process has for something else."""
    database, split = Database(world.settings), RequeuePace.split
    for _ in range(4):
        database.insert(replace(shapes.message_lost(new_process_id(), database.now), graph=None))
    world.store.actors.save([ActorPreferences(id="part", requeue_rate=1.0)])
    asked = Counter[str]()

    def counted(pace: RequeuePace, findings: Sequence[Finding], around: Surroundings) -> Any:
        asked.update(one.record for one in findings)
        return split(pace, findings, around)

    monkeypatch.setattr(RequeuePace, "split", counted)
    results = repaired(world)
    assert len(results) == 4 and all(one.repaired["GRAPH_MISSING"] == 1 for one in results.values())
    assert {*asked.values()} == {1} and len(asked) == 4
    told = [one for one in results.values() if one.state is ResultState.DONE and "requeue_rate" in (one.error or "")]
    assert len(told) == 3
