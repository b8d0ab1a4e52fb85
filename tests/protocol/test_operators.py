"""What breaks a process, restarts it and aborts it, cut after each of its writes: the process ends right, or is visibly
broken or aborted, and is never stuck."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Settings
from recovery.records import ProcessState
from recovery.records.ids import new_pass
from recovery.store import Restarted
from tests.protocol import harness
from tests.seldom import by_turns
from tests.waiting import wait_until
from tests.world import check_quiet

pytestmark = pytest.mark.thorough

BREAK = [
    "Decisions.finish:after",
    "Graphs.fail:before",
    "Graphs.fail:after",
    "Interruptions.add:after",
    "Processes.break_:before",
    "Processes.break_:after",
    "Markers.write:before",
    "Markers.write:after",
    "Processes.settle_marker:before",
    "Processes.settle_marker:after",
]
LIFT = ["Markers.lift:before", "Markers.lift:after", "Processes.finish:before", "Processes.finish:after"]
RESTART = [
    "RestartUpdates.queue:after",
    "RestartUpdates.reopen_graphs:before",
    "RestartUpdates.reopen_graphs:after",
    "RestartUpdates.reopen_processes:before",
    "RestartUpdates.reopen_processes:after",
    "Interruptions.remove_before:before",
    "Interruptions.remove_before:after",
    "Interruptions.remove_lives:before",
    "Interruptions.remove_lives:after",
    "Broker.push:before",
    "Broker.push:after",
]
REOPEN = [*dict.fromkeys(step.partition(":")[0] for step in RESTART[1:] if "push" not in step)]
ABORT = [
    "Aborts.end:after",
    "Aborts.close_graphs:before",
    "Aborts.close_graphs:after",
    "Aborts.end_decisions:before",
    "Aborts.end_decisions:after",
    "Interruptions.remove_all:after",
    "Aborts.clear_graph_deadlines:before",
    "Aborts.clear_graph_deadlines:after",
]
BAD_PRICE = "bad price"


class World(harness.World):
    """`sale` adds up prices; while Redis holds a mark, one of them can't be had."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)

        @self.app.actor(worker_timeout=0.4)
        def price(number: int) -> int:
            if number == 2 and self.redis.exists(BAD_PRICE):
                raise ValueError("no price")
            return number

        @self.app.process(idle_timeout=0.4, worker_timeout=0.4, markers=True)
        def sale() -> Any:
            double, total = self.app.actors["double"], self.app.actors["total"]
            return total.schedule([double.schedule(price.schedule(number)) for number in (1, 2, 3)])

    def fails(self, fails: bool) -> None:
        if fails:
            self.redis.set(BAD_PRICE, 1)
        else:
            self.redis.delete(BAD_PRICE)

    def until(self, process_id: str, state: ProcessState) -> None:
        def reached() -> bool:
            self.pump()
            self.scan()
            return self.process(process_id).state is state

        wait_until(reached, 15, f"{state} of process {process_id}")

    def broken(self) -> str:
        self.fails(True)
        process_id = self.start("sale")
        self.until(process_id, ProcessState.BROKEN)
        self.fails(False)
        return process_id

    def at_rest(self, process_id: str) -> bool:
        """Whether nothing of a process is live any more, after one more look at everything."""
        self.pump()
        self.scan()
        live = {"_id": {"$regex": f"^{process_id}"}, "recoveryTime": {"$exists": True}}
        names = ("processes", "decisions", "graphs")
        return not any(self.store.database[name].count_documents(live) for name in names)

    def marked(self) -> list[str]:
        """The processes whose markers are there."""
        return [marker.process for marker in self.store.markers.all()]

    def listed(self, process_id: str) -> int:
        return len(self.store.interruptions.of_process(process_id))


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def ends_right(world: World, process_id: str) -> None:
    world.until(process_id, ProcessState.FINISHED)
    assert world.app.result(process_id) == 12
    check_quiet(world, process_id)
    assert world.listed(process_id) == 0
    assert world.marked() == []


@pytest.mark.parametrize("at", BREAK)
def test_break_cut_off(world: World, at: str) -> None:
    world.fails(True)
    process_id = world.start("sale")
    # Of the finished ones the first is that of the start.
    world.dies(at, lambda doomed: doomed.pump("doomed#1"), skipped=1 if "finish" in at else 0)
    world.until(process_id, ProcessState.BROKEN)
    wait_until(lambda: world.pump() or world.listed(process_id), 5, "an interruption")
    wait_until(lambda: world.scan() or world.marked() == [process_id], 5, "its marker")
    world.fails(False)
    assert world.app.restart(process_id) == 1
    ends_right(world, process_id)


@pytest.mark.parametrize("at", LIFT)
def test_the_end_of_a_restarted_process_cut_off(world: World, at: str) -> None:
    """Its marker is lifted before it is finished: afterwards nobody would look."""
    process_id = world.broken()
    assert world.marked() == [process_id]
    assert world.app.restart(process_id) == 1
    world.dies(at, lambda doomed: doomed.pump("doomed#1"))
    ends_right(world, process_id)


def test_restart_cut_off_before_its_commit_point(world: World) -> None:
    process_id = world.broken()
    world.dies("RestartUpdates.queue:before", lambda doomed: doomed.app.restart(process_id))
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN
    assert world.listed(process_id) == 1
    assert world.app.restart(process_id) == 1
    ends_right(world, process_id)


@pytest.mark.parametrize("at", RESTART)
def test_restart_cut_off(world: World, at: str) -> None:
    """After its commit point nobody need come back to it."""
    process_id = world.broken()
    world.dies(at, lambda doomed: doomed.app.restart(process_id))
    ends_right(world, process_id)


@pytest.mark.parametrize(
    ("step", "when", "then"), by_turns(REOPEN, ["before", "after"], ["it goes well", "it fails again"])
)
def test_apply_of_a_restarted_task_cut_off(world: World, step: str, when: str, then: str) -> None:
    """The restart was cut off, and so is the worker that brings it on."""
    at, again = f"{step}:{when}", then == "it fails again"
    process_id = world.broken()
    (failed,) = world.store.interruptions.of_process(process_id)
    world.app.resources.broker.push(world.store.restarts.queue([Restarted(failed.id, 0, 0)], new_pass()))
    world.fails(again)
    world.dies(at, lambda doomed: doomed.pump("doomed#1"))
    if again:
        wait_until(lambda: world.at_rest(process_id), 10, "all at rest")
        assert world.process(process_id).state is ProcessState.BROKEN
        (found,) = world.store.interruptions.of_process(process_id)
        assert found.restarts == 1
        world.fails(False)
        assert world.app.restart(process_id) == 1
    ends_right(world, process_id)


def aborted_for_good(world: World, process_id: str) -> None:
    """All at rest in the aborted epoch, nothing listed, and nothing runs on."""
    wait_until(lambda: world.at_rest(process_id), 10, "all records at rest")
    assert world.process(process_id).state is ProcessState.ABORTED
    decisions = world.decisions(process_id).values()
    assert {decision.state.value for decision in decisions} == {"finished"}
    assert world.listed(process_id) == 0
    graph = world.store.graphs.get(process_id)
    assert graph is not None
    assert graph.epoch == world.process(process_id).epoch == 1


@pytest.mark.parametrize(("at", "whom"), by_turns(ABORT, ["running", "running, aborted again", "broken"]))
def test_abort_cut_off(world: World, at: str, whom: str) -> None:
    state = ProcessState.BROKEN if whom == "broken" else ProcessState.RUNNING
    person = whom == "running, aborted again"
    if state is ProcessState.BROKEN:
        process_id = world.broken()
    else:
        process_id = world.start("sale")
        world.pump(serve={"sale": world.app.actors["sale"]})
    world.dies(at, lambda doomed: doomed.app.abort(process_id, "no longer wanted"))
    if person:
        world.app.abort(process_id, "again")
    aborted_for_good(world, process_id)
    error = world.process(process_id).error
    assert error is not None
    assert error.message == "no longer wanted"


def test_abort_cut_off_before_its_commit_point(world: World) -> None:
    process_id = world.start("sale")
    world.dies("Aborts.end:before", lambda doomed: doomed.app.abort(process_id, "no longer wanted"))
    ends_right(world, process_id)


def test_abort_of_a_process_whose_records_were_at_rest_cut_off(world: World) -> None:
    """No deadline of it was to come: whoever finds the abort does so by the one that was given to the graph first."""
    process_id = world.broken()
    wait_until(lambda: world.at_rest(process_id), 10, "all records at rest")
    world.dies("Aborts.end:after", lambda doomed: doomed.app.abort(process_id, "no longer wanted"))
    aborted_for_good(world, process_id)
