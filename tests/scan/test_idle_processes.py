"""The Graph and the Process scanner: what no decision's deadline shows is found in the whole process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

import recovery.store as store_module
from recovery.engine import enqueue
from recovery.health.process_check import look
from recovery.operations.kinds import kind_of
from recovery.records import (
    Decision,
    DecisionState,
    ErrorInfo,
    Graph,
    Interruption,
    Operation,
    OperationKind,
    OperationResult,
    Outcome,
    Process,
    ProcessState,
    Task,
)
from recovery.records.operation_parts import result_id
from recovery.rules import Rule
from recovery.scan import GraphScanner, Scanner
from recovery.settings import Settings
from recovery.store import Finished
from tests.scan.making import DAY, after_find, scanner
from tests.store import single
from tests.store.writing import is_about, put
from tests.world import World, check_quiet

BOTH = pytest.mark.parametrize("name", ["graphs", "processes"])


@pytest.fixture(autouse=True)
def actors(world: World) -> None:
    register_actors(world)


def register_actors(world: World) -> None:
    step = world.app.actor("step")(lambda: "stepped")
    world.app.process("order")(step.schedule)


def started(world: World, *, steps: int = 0) -> str:
    """A process `steps` messages into its life, which nobody has touched for a day."""
    process_id = world.start("order")
    for _ in range(steps):
        world.pump(serve={"order": world.app.actors["order"]})
    world.redis.flushdb()
    return process_id


def make_old(world: World) -> None:
    """All that happened so far was a day ago, and every deadline of a graph and a process is past."""
    past = world.store.now() - DAY
    change = {"startedAt": past, "touchedAt": past, "recoveryTime": past}
    for name in ("processes", "graphs"):
        world.store.database[name].update_many({"recoveryTime": {"$exists": True}}, {"$set": change})
    finished = {"state": "finished"}
    world.store.database["decisions"].update_many(finished, {"$set": {"outcome.finishedAt": past}})


def found_by(one: Scanner[Any], rule: Rule, count: int = 1) -> None:
    result = one.run_once()
    assert (result.scanner, result.error) == (one.name, None)
    assert result.repaired == {rule: count}


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("graphs", ["decisions"]),
        ("processes", ["decisions"]),
        ("processes", ["decisions", "graphs"]),
        ("processes", ["decisions", "graphs", "tasks"]),
    ],
)
def test_a_start_cut_off(world: World, name: str, gone: list[str]) -> None:
    """Where the graph is gone, only the process has a deadline that could be past."""
    process_id = started(world)
    make_old(world)
    for collection in gone:
        world.store.database[collection].delete_many({})
    found_by(scanner(world, name), Rule.START_NOT_REGISTERED)
    world.pump()
    assert world.app.result(process_id, timeout=0) == "stepped"
    check_quiet(world, process_id)


@BOTH
def test_ready_and_not_queued(world: World, name: str) -> None:
    process_id = started(world, steps=1)
    make_old(world)
    waiting = {"$set": {"state": "waiting"}, "$unset": {"recoveryTime": "", "pass": "", "queuedAt": ""}}
    world.store.database["decisions"].update_one({"actor": "step"}, waiting)
    found_by(scanner(world, name), Rule.READY_NOT_QUEUED)
    world.pump()
    assert world.app.result(process_id, timeout=0) == "stepped"


@BOTH
def test_children_missing(world: World, name: str) -> None:
    """Applied, and then a failover took back the children's records."""
    process_id = started(world, steps=1)
    make_old(world)
    world.store.database["decisions"].delete_one({"actor": "step"})
    world.store.database["tasks"].delete_one({"actor": "step"})
    found_by(scanner(world, name), Rule.CHILDREN_MISSING)
    world.pump()
    assert world.app.result(process_id, timeout=0) == "stepped"
    check_quiet(world, process_id)


@BOTH
def test_finished_and_not_applied(world: World, name: str) -> None:
    process_id = started(world)
    world.store.database["decisions"].update_one({}, {"$unset": {"recoveryTime": ""}, "$set": {
        "state": "finished", "children": [],
        "outcome": {"pass": "k", "value": '"done"'},
    }})  # fmt: skip
    make_old(world)
    found_by(scanner(world, name), Rule.DECISION_NOT_APPLIED)
    assert world.app.result(process_id, timeout=0) == "done"


@BOTH
def test_finish_not_recorded(world: World, name: str) -> None:
    process_id = started(world)
    outcome = Outcome(pass_key="k", value='"done"')
    world.store.database["decisions"].delete_many({})
    put(world.store, Decision(id=f"{process_id}/start", actor="order", state=DecisionState.FINISHED, outcome=outcome))
    single.apply(world.store, process_id, 0, [Finished("start", {}, ())])
    make_old(world)
    found_by(scanner(world, name), Rule.FINISH_NOT_RECORDED)
    assert world.app.result(process_id, timeout=0) == "done"
    check_quiet(world, process_id)


@BOTH
def test_a_healthy_process_is_looked_at_ever_more_rarely(world: World, name: str) -> None:
    process_id = started(world)
    make_old(world)
    result = scanner(world, name).run_once()
    assert (result.looked_at, result.repaired) == (1, {})
    record: Any = world.store.graphs.get(process_id) if name == "graphs" else world.process(process_id)
    assert is_about(record.recovery_time, world.store.now(), DAY.total_seconds())
    assert scanner(world, name).run_once().looked_at == 0


def test_a_process_without_a_deadline_is_stamped_and_looked_at(world: World) -> None:
    process_id = started(world)
    change = {"$unset": {"recoveryTime": ""}}
    world.store.database.command(
        "update", "processes", updates=[{"q": {"_id": process_id}, "u": change}], bypassDocumentValidation=True
    )
    found_by(scanner(world, "processes"), Rule.DEADLINE_MISSING)
    process = world.process(process_id)
    assert process.recovery_time is not None
    assert process.recovery_time <= world.store.now() + timedelta(seconds=61)


def test_the_graph_of_a_process_that_ended_goes_to_rest(world: World) -> None:
    past, soon = world.store.now() - DAY, world.store.now() + timedelta(minutes=1)
    of_start, of_a = (ErrorInfo(kind="E", message="no", task=task) for task in ("start", "a"))
    put(
        world.store,
        Process(id="done", type="order", args="", state=ProcessState.FINISHED),
        Graph(id="done", finished=("start",), recovery_time=past),
        Process(id="broken", type="order", args="", state=ProcessState.BROKEN, error=of_start),
        Graph(id="broken", not_finished={"start": past}, failed={"start": True}, recovery_time=past),
        Process(id="busy", type="order", args="", state=ProcessState.BROKEN, error=of_a),
        Graph(id="busy", not_finished={"a": past, "b": past}, failed={"a": True}, touched_at=past, recovery_time=past),
        Decision(id="busy/b", actor="step", state=DecisionState.WORKING, recovery_time=soon),
        Graph(id="orphan", not_finished={"start": past}, touched_at=past, recovery_time=past),
        *(
            Interruption(id=key, type="order", actor="order", kind="E", message="", fingerprint="")
            for key in ("broken/start", "busy/a")
        ),
    )
    result = scanner(world, "graphs").run_once()
    assert (result.looked_at, result.repaired) == (4, {})
    graphs = world.store.graphs.get_many(["done", "broken", "busy", "orphan"])
    assert {key for key, graph in graphs.items() if graph.recovery_time is None} == {"done", "broken"}
    assert scanner(world, "graphs").run_once().looked_at == 0


@BOTH
def test_what_goes_on_between_look_and_write_wins(world: World, name: str) -> None:
    """Diagnosed as ready and not queued; meanwhile it was queued, taken and finished."""
    process_id = started(world, steps=1)
    make_old(world)
    waiting = {"$set": {"state": "waiting"}, "$unset": {"recoveryTime": "", "pass": "", "queuedAt": ""}}
    world.store.database["decisions"].update_one({"actor": "step"}, waiting)
    (child,) = [d for d in world.decisions(process_id).values() if d.actor == "step"]

    def meanwhile() -> None:
        assert enqueue(world.app.resources, [child.id]) == [child.id]
        world.pump()

    one = scanner(world, name)
    after_find(one, meanwhile)
    assert one.run_once().repaired == {}
    assert world.app.result(process_id, timeout=0) == "stepped"
    assert world.redis.llen("step") == 0
    check_quiet(world, process_id)


@BOTH
@pytest.mark.parametrize("odd", ["complete, without a value", "not a process"])
def test_one_that_cant_be_repaired_holds_up_no_other(world: World, name: str, odd: str) -> None:
    past = world.store.now() - 2 * DAY
    bad = Graph(id="0", finished=("start",), touched_at=past, recovery_time=past)
    put(world.store, bad)
    if odd == "complete, without a value":
        put(world.store, Process(id="0", type="order", args="", started_at=past, recovery_time=past))
        put(world.store, Task(id="0/start", actor="order", args="[[],{}]"))
        failed = Outcome(pass_key="k", error=ErrorInfo(kind="ValueError", message="of another program"))
        put(world.store, Decision(id="0/start", actor="order", state=DecisionState.FINISHED, outcome=failed))
    process_id = started(world)
    outcome = Outcome(pass_key="k", value='"done"')
    world.store.database["decisions"].delete_many({"_id": {"$ne": "0/start"}})
    put(world.store, Decision(id=f"{process_id}/start", actor="order", state=DecisionState.FINISHED, outcome=outcome))
    single.apply(world.store, process_id, 0, [Finished("start", {}, ())])
    make_old(world)
    found_by(scanner(world, name), Rule.FINISH_NOT_RECORDED)
    assert world.app.result(process_id, timeout=0) == "done"
    assert scanner(world, name).run_once().looked_at == 0, "what can't be repaired is looked at later"


@BOTH
@pytest.mark.parametrize("without_graph", [False, True])
def test_of_large_processes_few_are_held_in_memory(
    world: World, name: str, without_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are looked at in one run, in as many pages as it takes."""
    if name == "graphs" and without_graph:
        return  # there is no graph whose deadline could be past
    large = [started(world, steps=1) for _ in range(5)]
    make_old(world)
    if without_graph:
        world.store.database["graphs"].delete_many({})
    monkeypatch.setattr(store_module, "PORTION_TASKS", 5)  # two have two tasks each
    monkeypatch.setattr(store_module, "TASK_BYTES", max([1, *world.store.graphs.sizes(large).values()]) // 2)
    one = scanner(world, name)
    pages: list[int] = []
    judge = one.judge

    def counted(page: Sequence[Any]) -> Any:
        pages.append(len(page))
        return judge(page)

    one.judge = counted  # type: ignore[method-assign]
    assert one.run_once().looked_at == len(large)
    assert pages == [2, 2, 1]


@pytest.fixture
def slow_to_read(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    """An hour passes while records are read, each time. No step takes as long as `apply_timeout`, however busy the
    machine is."""
    world = World(emptied, apply_timeout=60.0)
    register_actors(world)
    now, late = world.store.now, timedelta(0)

    def slowly(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> list[Any]:
            nonlocal late
            found, late = list(real(*args, **kwargs)), late + timedelta(hours=1)
            return found

        return read

    monkeypatch.setattr(world.store, "now", lambda: now() + late)
    monkeypatch.setattr(world.store, "snapshots", slowly(world.store.snapshots))
    pages = slowly(world.store.snapshot_pages)
    monkeypatch.setattr(world.store, "snapshot_pages", lambda *args, **kwargs: iter(pages(*args, **kwargs)))
    return world


def scanned(world: World, process_id: str) -> list[Rule]:
    graphs = GraphScanner(world.app.resources, world.app.outbox)
    diagnosis = graphs.judge(graphs.read([process_id]))
    around = diagnosis.around
    assert around.now - around.read_at > timedelta(minutes=59), "no time has passed: nothing was tried"
    return [one.rule for one in diagnosis.findings]


def checked(world: World, process_id: str) -> list[Rule]:
    return [one.rule for one in look(world.app.resources, process_id).findings]


def repaired_by_an_operation(world: World, process_id: str) -> list[Rule]:
    repairs = kind_of(OperationKind.REPAIR, world.app.resources, world.app.outbox)
    planned = OperationResult(id=result_id(1, process_id), operation=1, process=process_id)
    (ended,) = repairs.apply(Operation(id=1, kind=OperationKind.REPAIR), [planned])
    return [Rule(name) for name in ended.repaired]


@pytest.mark.parametrize("judged", [scanned, checked, repaired_by_an_operation])
def test_what_took_long_to_read_is_judged_as_of_its_time(
    slow_to_read: World, judged: Callable[[World, str], list[Rule]]
) -> None:
    """By the time after it a graph is settled in which somebody was at work: what that one has not written yet, and
    what was read before it was, would count as lost."""
    process_id = started(slow_to_read, steps=1)
    waiting = {"$set": {"state": "waiting"}, "$unset": {"recoveryTime": "", "pass": "", "queuedAt": ""}}
    assert slow_to_read.store.database["decisions"].update_one({"actor": "step"}, waiting).modified_count
    assert Rule.READY_NOT_QUEUED not in judged(slow_to_read, process_id)
    make_old(slow_to_read)
    assert Rule.READY_NOT_QUEUED in judged(slow_to_read, process_id)
