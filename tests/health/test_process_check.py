"""A process with one record that is not as it should be: found, repaired, and nothing found afterwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import ProcessNotFound
from recovery.health import deadlines, look, repair
from recovery.records import Promise
from recovery.rules import Repair, Rule
from tests.world import World, by_message_only

DAY = timedelta(days=1)


@pytest.fixture
def process_id(world: World) -> str:
    """A process whose start task is queued."""

    @world.app.process()
    def sum_up() -> Promise:
        return world.app.actors["add"].schedule(1, 2)

    world.tell()
    return world.start(sum_up)


def change(world: World, collection: str, key: str, **fields: Any) -> None:
    """Write past the validator; a field that is None is taken away."""
    kept = {name: value for name, value in fields.items() if value is not None}
    gone = dict.fromkeys(fields.keys() - kept.keys(), "")
    update = {operator: part for operator, part in (("$set", kept), ("$unset", gone)) if part}
    world.store.database[collection].update_one({"_id": key}, update, bypass_document_validation=True)


def start_of(world: World, process_id: str, **fields: Any) -> None:
    change(world, "decisions", f"{process_id}/start", **fields)


def idle(world: World, process_id: str) -> None:
    change(world, "graphs", process_id, touchedAt=world.store.now() - DAY)


def work_timeout(world: World, process_id: str) -> None:
    start_of(world, process_id, state="working", worker="w:1#1", recoveryTime=world.store.now() - DAY)


def due(world: World, process_id: str) -> None:
    start_of(world, process_id, state="delayed", recoveryTime=world.store.now() - DAY)


def deadline_missing(world: World, process_id: str) -> None:
    start_of(world, process_id, state="working", worker="w:1#1", recoveryTime=None)


def message_lost(world: World, process_id: str) -> None:
    start_of(world, process_id, queuedAt=world.store.now() - DAY)
    world.redis.flushdb()
    world.store.queues.polled({"sum_up": None})


def not_applied(world: World, process_id: str) -> None:
    outcome = {"pass": "x", "value": "3", "finishedAt": world.store.now() - DAY}
    start_of(world, process_id, state="finished", outcome=outcome, recoveryTime=None)


def decided(world: World, process_id: str) -> str:
    """Let the start task be decided; its child, which is queued then."""
    with by_message_only():
        world.pump(serve={"sum_up": world.app.actors["sum_up"]})
    (child,) = world.decisions(process_id).keys() - {"start"}
    idle(world, process_id)
    return child


def remove_of_child(world: World, process_id: str, *collections: str) -> None:
    child = decided(world, process_id)
    for collection in collections:
        world.store.database[collection].delete_one({"_id": f"{process_id}/{child}"})


def children_missing(world: World, process_id: str) -> None:
    remove_of_child(world, process_id, "tasks", "decisions")


def task_missing(world: World, process_id: str) -> None:
    remove_of_child(world, process_id, "tasks")


def decision_missing(world: World, process_id: str) -> None:
    remove_of_child(world, process_id, "decisions")


def graph_missing(world: World, process_id: str) -> None:
    decided(world, process_id)
    world.store.database["graphs"].delete_one({"_id": process_id})


def finished_undecided(world: World, process_id: str) -> None:
    decided(world, process_id)
    start_of(world, process_id, state="waiting", outcome=None, children=None, queuedAt=None, recoveryTime=None)


def dead_link(world: World, process_id: str) -> None:
    child = decided(world, process_id)
    change(world, "graphs", process_id, links={child: {"start": True}})


def cycle(world: World, process_id: str) -> None:
    child = decided(world, process_id)
    change(world, "graphs", process_id, links={child: {child: True}})


def task_timeout(world: World, process_id: str) -> None:
    world.store.actors.override("sum_up", {"task_timeout": 60.0})
    start_of(world, process_id, enqueuedAt=world.store.now() - DAY)


def process_timeout(world: World, process_id: str) -> None:
    world.store.process_types.override("sum_up", {"process_timeout": 60.0})
    change(world, "processes", process_id, startedAt=world.store.now() - DAY)


def ready_not_queued(world: World, process_id: str) -> None:
    start_of(world, process_id, state="waiting", queuedAt=None, recoveryTime=None)
    idle(world, process_id)


def start_not_registered(world: World, process_id: str) -> None:
    for collection in ("tasks", "decisions"):
        world.store.database[collection].delete_one({"_id": f"{process_id}/start"})
    world.store.database["graphs"].delete_one({"_id": process_id})
    change(world, "processes", process_id, startedAt=world.store.now() - DAY)


def finish_not_recorded(world: World, process_id: str) -> None:
    world.bring_to_end(process_id)
    soon = world.store.now() + DAY
    change(world, "processes", process_id, state="running", recoveryTime=soon, result=None, endedAt=None)
    idle(world, process_id)


BROKEN: dict[Rule, Callable[[World, str], None]] = {
    Rule.WORK_TIMEOUT: work_timeout,
    Rule.DUE: due,
    Rule.DEADLINE_MISSING: deadline_missing,
    Rule.MESSAGE_LOST: message_lost,
    Rule.DECISION_NOT_APPLIED: not_applied,
    Rule.CHILDREN_MISSING: children_missing,
    Rule.READY_NOT_QUEUED: ready_not_queued,
    Rule.START_NOT_REGISTERED: start_not_registered,
    Rule.FINISH_NOT_RECORDED: finish_not_recorded,
    Rule.GRAPH_MISSING: graph_missing,
    Rule.TASK_MISSING: task_missing,
    Rule.DECISION_MISSING: decision_missing,
    Rule.FINISHED_UNDECIDED: finished_undecided,
    Rule.DEAD_LINK: dead_link,
    Rule.CYCLE: cycle,
    Rule.TASK_TIMEOUT: task_timeout,
    Rule.PROCESS_TIMEOUT: process_timeout,
}
ENDS_BROKEN = {Rule.CYCLE, Rule.TASK_TIMEOUT}


@pytest.mark.parametrize("rule", BROKEN)
def test_found_and_repaired(world: World, process_id: str, rule: Rule) -> None:
    BROKEN[rule](world, process_id)
    before = contents(world)
    examined = look(world.app.resources, process_id)
    assert [finding.rule for finding in examined.findings] == [rule]
    assert contents(world) == before, "to look changes nothing"

    done, afterwards = repair(world.app.resources, examined)
    assert done[rule] == 1
    assert afterwards.findings == ()
    assert world.bring_to_end(process_id).state == ("broken" if rule in ENDS_BROKEN else "finished")


def contents(world: World) -> dict[str, Any]:
    return {name: list(world.store.database[name].find()) for name in ("processes", "tasks", "decisions", "graphs")}


def test_a_healthy_process_and_who_looks_at_it_next(world: World, process_id: str) -> None:
    examined = look(world.app.resources, process_id)
    assert examined.findings == ()
    coming = deadlines(examined.snapshot)
    assert {(one.record, one.scanner) for one in coming} == {
        (process_id, "processes"), (process_id, "graphs"), (f"{process_id}/start", "decisions")
    }  # fmt: skip
    assert [one.at for one in coming] == sorted(one.at for one in coming)
    done, again = repair(world.app.resources, examined)
    assert not done and again is examined


def test_what_can_only_wait_is_left_as_it_is(world: World, process_id: str) -> None:
    """Nobody serves the queue: to move the deadline would hide that."""
    start_of(world, process_id, recoveryTime=world.store.now() - DAY)
    before = contents(world)
    examined = look(world.app.resources, process_id)
    done, afterwards = repair(world.app.resources, examined)
    assert not done
    assert [finding.rule for finding in afterwards.findings] == [Rule.NO_ACTORS]
    assert contents(world) == before


def test_a_repair_out_of_date_does_nothing(world: World, process_id: str) -> None:
    work_timeout(world, process_id)
    examined = look(world.app.resources, process_id)
    repair(world.app.resources, examined)
    done, afterwards = repair(world.app.resources, examined)
    assert not done
    assert afterwards.findings == ()


def test_an_ended_process_needs_nobody(world: World, process_id: str) -> None:
    world.bring_to_end(process_id)
    world.scan()
    assert look(world.app.resources, process_id).findings == ()


def test_unknown_process(world: World) -> None:
    with pytest.raises(ProcessNotFound, match="no process has the id 'nothing'"):
        look(world.app.resources, "nothing")


def too_early(world: World, process_id: str) -> None:
    decided(world, process_id)
    change(world, "processes", process_id, state="finished", result="3", recoveryTime=None)


def orphan(world: World, process_id: str) -> None:
    world.store.database["processes"].delete_one({"_id": process_id})


@pytest.mark.parametrize(("break_it", "rule"), [(too_early, Rule.FINISHED_TOO_EARLY), (orphan, Rule.ORPHAN)])
def test_what_only_an_operator_can_decide_is_left(
    world: World, process_id: str, break_it: Callable[[World, str], None], rule: Rule
) -> None:
    break_it(world, process_id)
    before = contents(world)
    examined = look(world.app.resources, process_id)
    done, afterwards = repair(world.app.resources, examined)
    assert not done
    assert rule in {finding.rule for finding in afterwards.findings}
    assert contents(world) == before


NO_JSON: list[tuple[str, str, str]] = [
    ("processes", "", "args"),
    ("tasks", "/start", "args"),
    ("decisions", "/start", "outcome.value"),
]


@pytest.mark.parametrize(("collection", "rest", "field"), NO_JSON)
def test_a_text_that_is_no_json(world: World, collection: str, rest: str, field: str) -> None:
    """No rule reads values; who asks for one process is told."""
    process_id = world.start(world.app.process("order")(lambda: "done"))
    world.pump()
    assert look(world.app.resources, process_id).findings == ()
    key = f"{process_id}{rest}"
    world.store.database[collection].update_one({"_id": key}, {"$set": {field: '"packed'}})
    (finding,) = look(world.app.resources, process_id).findings
    assert (finding.rule, finding.record, finding.repair) == (Rule.RECORD_DAMAGED, key, Repair.REPORT)
    assert f"its {field} is not valid JSON: Unterminated string" in finding.evidence
