"""Each repair says on whose behalf it was done: in the process's records, in its history, and in the metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery import operations
from recovery.engine.operators.restart import restart_process, restart_selected
from recovery.health import look, repair
from recovery.metrics.registry import REPAIRS
from recovery.operations import OperationRequest, OperationWorker
from recovery.records import DecisionState, Life, OperationState, ProcessState, RepairNote
from recovery.store import Selection
from tests.scan.making import overdue, process_of, scanner, start_of
from tests.waiting import wait_until
from tests.world import World

WORKING = DecisionState.WORKING


@pytest.fixture(autouse=True)
def add(world: World) -> None:
    world.app.process("add")(lambda: "added")
    world.tell()


def note(world: World, number: int = 0) -> RepairNote:
    world.store.catch_up(10)
    found = world.store.graphs.last_repair(process_of(number))
    assert found is not None and found.at is not None
    assert timedelta(0) <= world.store.now() - found.at < timedelta(minutes=1)
    return found


def counted(source: str) -> float:
    return float(REPAIRS.labels("WORK_TIMEOUT", "add", source)._value.get())


def test_a_scanners_repair(world: World) -> None:
    overdue(world, WORKING, 3)
    before = counted("auto")
    assert world.store.graphs.last_repair(process_of(0)) is None
    scanner(world, "decisions").run_once()
    assert (note(world).rule, note(world).source) == ("WORK_TIMEOUT", "auto")
    assert ":" in note(world).worker
    assert counted("auto") == before + 3
    graph = world.store.graphs.get(process_of(0))
    assert graph is not None and graph.recovery_time is not None
    assert graph.recovery_time < world.store.now() + timedelta(minutes=2), "its idle time counts from the repair"


def test_an_operators_repair_of_one_process(world: World) -> None:
    overdue(world, WORKING)
    before = counted("operator")
    repair(world.app.resources, look(world.app.resources, process_of(0)), "a test")
    assert (note(world).rule, note(world).source) == ("WORK_TIMEOUT", "operator")
    assert counted("operator") == before + 1


def test_an_operations_repair(world: World) -> None:
    overdue(world, WORKING)
    before = counted("operation")
    resources = world.app.resources
    ordered = operations.start(resources, OperationRequest("repair", everything=True, apply=True), "a test", by="me")
    worker = OperationWorker(resources, world.app.outbox, "worker")

    def finished() -> bool:
        worker.run_once(5)
        return operations.find(resources, ordered.id).state is OperationState.FINISHED

    wait_until(finished, 30, "the operation to be finished")
    assert (note(world).rule, note(world).source) == ("WORK_TIMEOUT", f"operation {ordered.id}")
    assert counted("operation") == before + 1


def test_a_note_that_another_program_damaged_says_nothing(world: World) -> None:
    overdue(world, WORKING)
    for damaged in (5, {"rule": 7}, "WORK_TIMEOUT"):
        world.store.database["graphs"].update_one({}, {"$set": {"repaired": damaged}}, bypass_document_validation=True)
        assert world.store.graphs.last_repair(process_of(0)) is None
    scanner(world, "decisions").run_once()
    assert note(world).rule == "WORK_TIMEOUT"


def fail(world: World) -> str:
    world.app.actors.clear()

    @world.app.process()
    def order() -> None:
        raise ValueError("no")

    process_id = world.start(order)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    return process_id


@pytest.mark.parametrize("how", ["one", "selected"])
def test_a_restart_of_failed_tasks_is_in_the_history(world: World, how: str) -> None:
    process_id = fail(world)
    if how == "one":
        restart_process(world.app.resources, process_id, reason="the card is valid now", by="me@here")
    else:
        restart_selected(world.app.resources, Selection(), reason="the card is valid now", by="me@here")
    (life,) = world.process(process_id).lives
    assert (life.state, life.tasks, life.by, life.reason) == (
        ProcessState.BROKEN, ("start",), "me@here", "the card is valid now",
    )  # fmt: skip
    assert life.error is not None and (life.error.kind, life.error.stack) == ("ValueError", None)
    assert world.process(process_id).epoch == life.epoch == 0, "no task that had finished is done again"
    assert datetime.now(UTC) - life.ended_at < timedelta(minutes=1)


def test_restarts_by_an_operation_name_it(world: World) -> None:
    process_id = fail(world)
    resources = world.app.resources
    asked = OperationRequest("restart", "state:broken", apply=True)
    ordered = operations.start(resources, asked, "the bank is back", by="me@here")
    worker = OperationWorker(resources, world.app.outbox, "worker")

    def noted() -> bool:
        worker.run_once(5)
        return bool(world.process(process_id).lives)

    wait_until(noted, 30, "the restart to be noted")
    (life,) = world.process(process_id).lives
    assert (life.operation, life.by, life.reason) == (ordered.id, "me@here", "the bank is back")


def test_a_process_that_broke_as_a_whole(world: World) -> None:
    overdue(world, DecisionState.QUEUED)
    world.store.database["processes"].update_one(
        {}, {"$set": {"state": "broken", "error": {"kind": "ProcessTimeout", "message": "late"}}}
    )
    restart_process(world.app.resources, process_of(0), reason="let it go on", by="me@here")
    (life,) = world.process(process_of(0)).lives
    assert (life.tasks, life.reason) == ((), "let it go on")
    assert world.store.decisions.get(start_of(0)) is not None


def test_a_history_of_an_earlier_epoch_is_not_written(world: World) -> None:
    """Somebody had the process done again in between."""
    overdue(world, WORKING)
    life = Life(epoch=1, state=ProcessState.BROKEN, by="me", reason="a test", ended_at=world.store.now())
    world.store.restarts.note_restarts({process_of(0): life})
    assert world.process(process_of(0)).lives == ()
    world.store.restarts.note_restarts({process_of(0): life.evolve(epoch=0)})
    assert [one.by for one in world.process(process_of(0)).lives] == ["me"]
