"""Findings to writes: each repair makes its process healthy, once; and a finding that is out of date does nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.records import ActorPreferences, Decision, DecisionState, Outcome, Worker, to_document
from recovery.records.ids import new_pass
from recovery.repair import Repairer, look_around
from recovery.rules import Finding, Repair, Rule, Surroundings, judge_decision, judge_process
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from recovery.store import LOSSES_WITHOUT_DELAY, Queued
from tests.store import single
from tests.store.writing import contents, put
from tests.sweep import shapes
from tests.world import World

KINDS = ("processes", "tasks", "decisions", "graphs")
PROCESS = "0123456789abcdef" * 2
REPAIRED = [shape for shape in shapes.BROKEN if shape not in shapes.ONLY_TOLD]


def by_name(shape: shapes.Shape) -> str:
    return shape.__name__


@pytest.fixture
def world(emptied: Settings) -> World:
    """What a repair writes is not overdue again before the test looks at it, however busy the machine is."""
    return World(emptied, message_timeout=60.0, apply_timeout=60.0, idle_timeout=60.0)


@pytest.fixture
def repairer(world: World) -> Repairer:
    return Repairer(world.app.resources, world.app.outbox)


def broken(world: World, shape: shapes.Shape) -> None:
    """A process of this shape in the database."""
    now = world.store.now()
    for name, documents in shape(PROCESS, now).to_documents().items():
        if documents:
            world.store.database[name].insert_many(documents, bypass_document_validation=True)
    world.store.database["queues"].insert_one(to_document(shapes.queue_statistics(now)))


def diagnose(world: World) -> tuple[list[Finding], Surroundings]:
    around = look_around(world.app.resources, queues=["part"])
    (snapshot,) = world.store.snapshots([PROCESS])
    return judge_process(snapshot, around), around


def everything(world: World) -> dict[str, Any]:
    return {name: contents(world.store, name) for name in KINDS} | {
        f"queue {actor}": world.redis.llen(actor) for actor in ("part", "merge", "orders", "report")
    }


@pytest.mark.parametrize("shape", REPAIRED, ids=by_name)
def test_a_repair_is_counted_and_leaves_nothing_to_find(world: World, repairer: Repairer, shape: shapes.Shape) -> None:
    broken(world, shape)
    findings, around = diagnose(world)
    assert {finding.rule for finding in findings} == {shapes.BROKEN[shape]}
    applied_before = shape is shapes.not_applied_but_ended
    assert repairer.repair(findings, around).done == ({} if applied_before else {shapes.BROKEN[shape]: 1})
    again, _ = diagnose(world)
    assert [f.rule for f in again] == ([Rule.WORK_TIMEOUT] if shape is shapes.deadline_missing else [])


@pytest.mark.parametrize("shape", shapes.BROKEN, ids=by_name)
def test_the_second_of_two_repairs_of_one_finding_does_nothing(
    world: World, repairer: Repairer, shape: shapes.Shape
) -> None:
    """Two scanners, or a sweep an hour ago: a finding may be as old as it likes."""
    broken(world, shape)
    findings, around = diagnose(world)
    repairer.repair(findings, around)
    once = everything(world)
    assert repairer.repair(findings, around).done == {}
    assert everything(world) == once


def moved_on(world: World, decision: Decision) -> Decision:
    """What an attempt, a scanner or a client did meanwhile: a claim and a result."""
    outcome = Outcome(pass_key="newer", value="1")
    changed = decision.evolve(
        state=DecisionState.FINISHED, pass_key="newer", outcome=outcome, recovery_time=world.store.now() + shapes.SOON
    )
    world.store.database["decisions"].replace_one({"_id": decision.id}, to_document(changed))
    return changed


@pytest.mark.parametrize(
    "shape", [shapes.work_timeout, shapes.due, shapes.deadline_missing, shapes.message_lost, shapes.no_actors,
              shapes.ready_not_queued], ids=by_name,
)  # fmt: skip
def test_a_record_that_moved_on_is_left_alone(world: World, repairer: Repairer, shape: shapes.Shape) -> None:
    broken(world, shape)
    findings, around = diagnose(world)
    for finding in findings:
        decision = world.store.decisions.get(finding.record)
        assert decision is not None
        moved_on(world, decision)
    before = everything(world)
    assert repairer.repair(findings, around).done == {}
    assert everything(world) == before


@pytest.mark.parametrize("lost", [True, False], ids=["its worker gone", "its deadline past"])
@pytest.mark.parametrize("actor", [{}, {"restart_after_work_timeout": False}], ids=["requeue", "fail"])
def test_a_task_that_another_worker_has_by_now_is_left_alone(
    world: World, repairer: Repairer, lost: bool, actor: dict[str, Any]
) -> None:
    """Found with one worker, and meanwhile requeued and claimed by the next."""
    broken(world, shapes.work_timeout)
    world.store.actors.save([ActorPreferences(id="part", **actor)])
    (found,) = world.store.database["decisions"].find({"state": "working"})
    around = look_around(world.app.resources, lost_workers=["w"] if lost else [])
    working = world.store.decisions.get(found["_id"])
    assert working is not None
    finding = judge_decision(working, around)
    assert finding is not None
    assert finding.rule is (Rule.WORKER_LOST if lost else Rule.WORK_TIMEOUT)
    assert finding.repair is (Repair.FAIL if actor else Repair.REQUEUE)
    assert world.store.requeues.timed_out([working.id], new_pass())
    queued = world.store.decisions.get(working.id)
    assert queued is not None
    assert single.claim(world.store, working.actor, working.id, queued.pass_key or "", "w2#1", 60)
    before = everything(world)
    assert repairer.repair([finding], around).done == {}
    assert everything(world) == before


def test_of_a_thousand_findings_the_servers_are_asked_a_few_times(world: World, repairer: Repairer) -> None:
    """One update and one find for the decisions, one update of the graphs, one push: by the server's count."""
    past = world.store.now() - shapes.OLD
    put(world.store, *(Decision(id=f"{n:032}/start", actor="part", state=DecisionState.WORKING, recovery_time=past,
                                worker="w") for n in range(1000)))  # fmt: skip
    overdue = next(world.store.decisions.overdue_pages(2000))
    around = look_around(world.app.resources)
    findings = [finding for decision in overdue.records if (finding := judge_decision(decision, around))]

    def asked() -> dict[str, int]:
        counts = world.store.database.command("serverStatus")["opcounters"]
        return {kind: counts[kind] for kind in ("query", "update", "insert", "getmore")}

    before = asked()
    assert repairer.repair(findings, around).done == {Rule.WORK_TIMEOUT: 1000}
    after = asked()
    # The server's own housekeeping may come in between.
    assert sum(after.values()) - sum(before.values()) < 20


def test_look_around_reads_what_rules_need(world: World) -> None:
    world.store.actors.save([ActorPreferences(id="part", worker_timeout=7)])
    world.store.queues.polled({"part": None})
    world.store.workers.beat(Worker(id="w", name="w", host="h", pid=1, pid_started=1), 60)
    world.app.resources.broker.push([Queued("p/t", "part", "k", world.store.now())])
    around = look_around(world.app.resources, queues=["part", "merge"], lost_workers=["w1", "w2#3"])
    assert around.actor("part").worker_timeout == 7
    assert around.actor("unknown") == ActorPreferences(id="unknown")
    assert around.queues["part"].polled_at is not None
    assert around.depths == {"part": 1, "merge": 0}
    assert around.is_lost("w1#5")
    assert around.is_lost("w2#3")
    assert not around.is_lost("w2#4")
    assert (around.is_empty("part"), around.is_empty("merge")) == (False, False), "not polled proves nothing"
    assert abs((around.now - world.store.now()).total_seconds()) < 2


def test_look_around_concludes_nothing_from_a_redis_that_is_away(world: World) -> None:
    from recovery import Recovery

    away = Recovery(world.settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"}))
    assert look_around(away.resources, queues=["part"]).depths == {}


def test_nothing_found_is_nothing_done(repairer: Repairer, world: World) -> None:
    assert repairer.repair([], look_around(world.app.resources)).done == {}


def test_a_message_that_is_lost_again_and_again_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As where another program eats from the queue: no outage, and nothing that more repairs would mend."""
    world.app.process("order")(lambda: "done")
    process_id = world.start("order")
    world.tell()
    repairer = Repairer(world.app.resources, world.app.outbox)
    for loss in range(1, LOSSES_WITHOUT_DELAY + 3):
        world.redis.flushdb()
        past = world.store.now() - timedelta(hours=1)
        world.store.database["decisions"].update_one({}, {"$set": {"queuedAt": past, "recoveryTime": past}})
        world.store.queues.polled({"order": None})
        around = look_around(world.app.resources, queues=["order"])
        (snapshot,) = world.store.snapshots([process_id])
        findings = judge_process(snapshot, around)
        assert repairer.repair(findings, around).done == {Rule.MESSAGE_LOST: 1}
        assert ("lost 6 times or more" in caplog.text) == (loss > LOSSES_WITHOUT_DELAY), loss
    assert world.redis.llen("order") == 1
    world.pump()
    assert world.process(process_id).result == '"done"'
