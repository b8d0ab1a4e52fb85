"""Each rule on a process that really runs and is broken in exactly that way: its name, its repair, the right end."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from recovery import Settings, health
from recovery.records import ErrorInfo, ProcessState
from recovery.repair import look_around
from recovery.rules import Repair, Rule, judge_process
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, WorkerScanner
from recovery.store import Restarted, definitions
from tests.failure_map.faults import (
    FAULTS,
    FINISHED,
    RESULT,
    Broken,
    Fault,
    begin,
    graph_damaged,
    make_app,
    task_missing,
)
from tests.scan.making import silent_workers
from tests.waiting import wait_until
from tests.world import World, check_quiet

pytestmark = pytest.mark.thorough

ONLY_TOLD = {Rule.FINISHED_TOO_EARLY, Rule.ORPHAN}
AT_REST = {Rule.INTERRUPTION_MISSING}
"""Rules on processes of which no deadline is left: an operator's check and a sweep find them."""
WAITED_FOR = {Rule.SERVERS_WERE_DOWN, Rule.NO_ACTORS, Rule.ACTORS_LAG}
NAMES = [fault.make.__name__ for fault in FAULTS]


@pytest.fixture
def world(emptied: Settings) -> World:
    # Long deadlines: what is found is found for what was done to it, and not since it is late.
    made = World(emptied, message_timeout=300.0, apply_timeout=5.0, idle_timeout=600.0)
    make_app(made)
    return made


def found(broken: Broken) -> list[tuple[Rule, Repair]]:
    """What is wrong with the process, as an operator's check sees it."""
    lost = [document["_id"] for document in broken.db["workers"].find({"_id": "gone"})]
    around = look_around(broken.world.app.resources, queues=broken.world.app.actors, lost_workers=lost)
    return [(f.rule, f.repair) for f in judge_process(broken.world.store.snapshots([broken.id])[0], around)]


def scan(broken: Broken) -> Counter[Rule]:
    """One run of each scanner; what they repaired."""
    broken.look_now()
    resources, outbox = broken.world.app.resources, broken.world.app.outbox
    repaired: Counter[Rule] = Counter()
    workers = WorkerScanner(resources, outbox, silent_workers(resources))
    for scanner in (workers, *(kind(resources, outbox) for kind in (DecisionScanner, GraphScanner, ProcessScanner))):
        result = scanner.run_once()
        assert result.error is None, result
        repaired += result.repaired
    return repaired


def check(broken: Broken) -> Counter[Rule]:
    """An operator's check; what it repaired."""
    done, after = health.repair(broken.world.app.resources, health.look(broken.world.app.resources, broken.id))
    assert after.findings == ()
    return done


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_one_fault(world: World, fault: Fault) -> None:
    broken = begin(world, fault)
    assert found(broken) == [], "the look-alike is left alone"
    fault.make(broken)
    seen = found(broken)
    assert {rule for rule, _ in seen} == {fault.rule}
    repaired = check(broken) if fault.rule in AT_REST else scan(broken)
    if fault.rule in ONLY_TOLD | WAITED_FOR:
        assert not repaired and {rule for rule, _ in found(broken)} <= {fault.rule}
    else:
        assert repaired[fault.rule], "named in what was done"
    if fault.rule in ONLY_TOLD:
        return
    if fault.rule is Rule.REMOVAL_CUT_OFF:
        assert sum(world.counts().values()) == 0, "nothing is left"
        return
    process = world.bring_to_end(broken.id)
    if fault.end in (FINISHED, None):
        assert (process.state, process.result) == (ProcessState.FINISHED, fault.result)
        check_quiet(world, broken.id)
    else:
        assert process.state is fault.end
        assert (process.error.kind if process.error is not None else None) == fault.error, process.error


TASK_MISSING, MADE_ANEW = {Rule.TASK_MISSING}, {Rule.GRAPH_MISSING, Rule.GRAPH_CONTRADICTED, Rule.EPOCH_WRONG}
DAMAGE = {Rule.RECORD_DAMAGED, Rule.GRAPH_CONTRADICTED, Rule.EPOCH_WRONG, Rule.TIME_IMPOSSIBLE}


def pair(first: tuple[int, Fault], second: tuple[int, Fault]) -> Any:
    """Each fourth at each change, of those with damage each eighth, and all in a long run."""
    seldom = (first[0] + second[0]) % (8 if DAMAGE & {first[1].rule, second[1].rule} else 4)
    name = f"{first[1].make.__name__}-{second[1].make.__name__}"
    return pytest.param(first[1], second[1], id=name, marks=[pytest.mark.soak] if seldom else [])


def _goes_well(fault: Fault) -> bool:
    return fault.end is FINISHED and fault.stage == "half way" and fault.result == RESULT


PAIRS = [
    pair(first, second)
    for first, second in combinations(enumerate(f for f in FAULTS if _goes_well(f)), 2)
    if first[1].process == second[1].process
    # Without a graph nobody misses the Task, and then it is not needed: the task runs from its decision's copy. So it
    # is once the graph is made anew.
    if not (TASK_MISSING & {first[1].rule, second[1].rule} and MADE_ANEW & {first[1].rule, second[1].rule})
    and {task_missing, graph_damaged} != {first[1].make, second[1].make}
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_faults_at_once(world: World, first: Fault, second: Fault) -> None:
    broken = begin(world, first)
    first.make(broken)
    try:
        second.make(broken)
    except AssertionError as error:
        pytest.skip(f"the first leaves nothing for the second to break: {error}")
    assert found(broken)

    def ended() -> bool:
        broken.settle()  # rules that conclude from what is absent wait until nobody is at work
        scan(broken)
        world.pump()
        return world.process(broken.id).state is not ProcessState.RUNNING

    wait_until(ended, 10, "the end")
    process = world.process(broken.id)
    assert (process.state, process.result) == (ProcessState.FINISHED, RESULT), process.error
    check_quiet(world, broken.id)


def test_every_rule_has_its_fault() -> None:
    assert {fault.rule for fault in FAULTS} == set(Rule)


def test_all_graphs_are_dropped(world: World) -> None:
    """The whole collection, while processes run: all end with the results they would have had."""
    broken = [begin(world, fault) for fault in FAULTS if fault.process == "order" and fault.stage == "half way"]
    done = {d["_id"]: d["outcome"] for d in world.store.database["decisions"].find({"state": "finished"})}
    world.store.database["graphs"].drop()
    for one in broken:
        assert world.bring_to_end(one.id).result == RESULT
        check_quiet(world, one.id)
    after = {d["_id"]: d["outcome"] for d in world.store.database["decisions"].find({"_id": {"$in": list(done)}})}
    assert after == done, "no finished task ran again"
    assert set(world.store.database["graphs"].index_information()) == {"_id_", "deadline", "repaired"}
    assert "graphs" in definitions.VALIDATORS


def test_all_tasks_are_dropped(world: World) -> None:
    """What is to be done stands in the decisions as well, and is made again from them."""
    broken = [begin(world, fault) for fault in FAULTS if fault.process == "order" and fault.stage == "half way"][:4]
    world.store.database["tasks"].drop()
    for one in broken:
        # A child that is ready runs from its decision's copy; `merge` is made again with what it waits for.
        wait_until(lambda one=one: _goes_on(one), 10, "the end")
        assert world.process(one.id).result == RESULT


def _goes_on(broken: Broken) -> bool:
    broken.settle()
    scan(broken)
    broken.world.pump()
    return broken.world.process(broken.id).state is not ProcessState.RUNNING


def broken_at_first(world: World) -> str:
    """A process that is broken; its one task succeeds when it runs again."""
    tries: list[int] = []

    @world.app.process("fragile")
    def fragile() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("at first")
        return "done"

    process_id = world.start(fragile)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    return process_id


def test_a_broken_process_that_lost_its_graph_can_be_restarted(world: World) -> None:
    process_id = broken_at_first(world)
    world.store.database["graphs"].delete_one({"_id": process_id})
    world.app.restart(process_id)
    assert world.bring_to_end(process_id).result == '"done"'


def test_an_abort_of_a_broken_process_that_is_cut_off_is_completed(world: World) -> None:
    process_id = broken_at_first(world)
    world.app.outbox.flush()
    world.store.graphs.clear_deadlines([process_id])
    process = world.process(process_id)
    world.store.aborts.announce([process_id])
    assert world.store.aborts.end([process_id], process.epoch, ErrorInfo(kind="Aborted", message="cut off")) == 1
    assert scan(Broken(world, process_id))[Rule.ABORT_CUT_OFF] == 1
    assert world.store.interruptions.of_process(process_id) == []
    graph = world.store.graphs.get(process_id)
    assert graph is not None and graph.recovery_time is None


def test_what_nobody_can_tell_any_more_breaks_the_process(world: World) -> None:
    """A Task that is too large to be copied into its decision, and that of its parent as well."""

    @world.app.process("large")
    def large() -> Any:
        return world.app.actors["report"].options(delay=3600).schedule("x" * 5000)

    process_id = world.start(large)
    world.pump()
    broken = Broken(world, process_id)
    decision = broken.decision("report")
    world.store.database["tasks"].delete_many({})
    broken.change("decisions", f"{process_id}/start", {"$unset": {"call": 1}})
    broken.settle()
    scan(broken)
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN and process.error is not None
    assert (process.error.kind, process.error.task) == ("RecordsLost", decision.partition("/")[2])


def test_a_restart_that_was_cut_off_is_gone_on_with(world: World) -> None:
    process_id = broken_at_first(world)
    process = world.process(process_id)
    cut_off = [Restarted(f"{process_id}/start", 0, process.epoch)]
    assert len(world.store.restarts.queue(cut_off, "new")) == 1
    assert world.process(process_id).state is ProcessState.BROKEN
    world.app.restart(process_id)
    assert world.process(process_id).state is ProcessState.RUNNING
    world.store.database["decisions"].update_one({}, {"$set": {"recoveryTime": world.store.now()}})
    broken = Broken(world, process_id)
    broken.change("decisions", f"{process_id}/start", {"$unset": {"queuedAt": 1}})
    assert scan(broken)[Rule.MESSAGE_LOST] == 1
    assert world.bring_to_end(process_id).result == '"done"'
