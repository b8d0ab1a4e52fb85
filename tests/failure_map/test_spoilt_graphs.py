"""Graphs that lack tasks while nobody looks: no process ends before all that was scheduled is done, and known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from recovery import Settings, health
from recovery.records import ProcessState
from recovery.repair import look_around
from recovery.rules import Finding, Repair, Rule, judge_process
from recovery.scan import DecisionScanner, GraphScanner
from recovery.store.lifecycle.decisions import Decisions
from recovery.survey.read import Outline, at_rest
from tests.failure_map.faults import (
    FAULTS,
    RESULT,
    Broken,
    begin,
    entry_lost,
    finish_not_recorded,
    finished_emptied,
    graph_emptied,
    make_app,
    not_finished_emptied,
)
from tests.world import World, by_message_only, check_quiet

pytestmark = pytest.mark.thorough

APPLY_TIMEOUT = 5.0
HALF_WAY, ENDED = ({fault.make: fault for fault in FAULTS}[make] for make in (finished_emptied, finish_not_recorded))


@pytest.fixture
def world(emptied: Settings) -> World:
    # Long deadlines: what is done is done at once, or since a scan was asked for.
    made = World(emptied, message_timeout=300.0, apply_timeout=APPLY_TIMEOUT, idle_timeout=600.0)
    make_app(made)
    return made


@pytest.fixture
def broken(world: World) -> Broken:
    """Two of three parts are still to be done, then `merge`, then `report`."""
    return begin(world, HALF_WAY)


@pytest.fixture
def over(world: World) -> Broken:
    """A process that has finished, at rest for an hour."""
    ended = begin(world, ENDED)
    check_quiet(world, ended.id)
    ended.settle()
    return ended


def one_part_lost(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$pull": {"finished": broken.task("part", "finished")}})


def graph_of(broken: Broken) -> dict[str, Any]:
    found: dict[str, Any] = broken.db["graphs"].find_one({"_id": broken.id})
    return found


def findings(broken: Broken) -> list[Finding]:
    resources = broken.world.app.resources
    return judge_process(broken.world.store.snapshots([broken.id])[0], look_around(resources))


def ends_well(broken: Broken) -> None:
    process = broken.world.process(broken.id)
    assert (process.state, process.result) == (ProcessState.FINISHED, RESULT), process.error
    check_quiet(broken.world, broken.id)


@pytest.mark.parametrize(
    "spoil",
    [finished_emptied, one_part_lost, entry_lost, graph_emptied, not_finished_emptied],
    ids=lambda f: f.__name__,
)
def test_it_is_made_whole_by_the_work_that_goes_on(broken: Broken, spoil: Callable[[Broken], None]) -> None:
    spoil(broken)
    broken.world.pump()
    ends_well(broken)


def test_just_before_its_last_task(broken: Broken) -> None:
    with by_message_only():
        broken.world.pump(serve={name: broken.world.app.actors[name] for name in ("part", "merge")})
    finished_emptied(broken)
    broken.world.pump()
    ends_well(broken)


@pytest.fixture
def done(world: World) -> list[str]:
    """What `note` did; a process of the type `aside` schedules one that nobody waits for, which waits for a part."""
    notes: list[str] = []
    part, note = world.app.actors["part"], world.app.actor("note")(lambda number: notes.append(f"noted {number}"))

    @world.app.process(idle_timeout=600)
    def aside() -> Any:
        note.schedule(part.schedule(2))
        return part.schedule(1)

    return notes


def test_a_task_that_nobody_waits_for_is_done_before_the_end(world: World, done: list[str]) -> None:
    broken = Broken(world, world.start("aside"))
    with by_message_only():
        world.pump(serve={"aside": world.app.actors["aside"]})
        gone = {f"{field}.{broken.task('note')}": 1 for field in ("notFinished", "links")}
        broken.change("graphs", broken.id, {"$unset": gone})
        world.pump(serve={"part": world.app.actors["part"]})
    assert world.process(broken.id).state is ProcessState.RUNNING and done == []
    world.pump()
    assert done == ["noted 4"]
    assert world.process(broken.id).result == "1"
    check_quiet(world, broken.id)


def test_while_a_decision_cant_be_read_it_is_not_known_what_is_lost(broken: Broken) -> None:
    """The end waits until that is mended; and once it is, for no idle deadline."""
    finished_emptied(broken)
    broken.change("decisions", broken.decision("part", "finished"), {"$set": {"timeouts": "none"}})
    world, resources = broken.world, broken.world.app.resources
    world.pump()
    assert world.process(broken.id).state is ProcessState.RUNNING
    assert is_looked_at_soon(broken), "it is not waited for its idle deadline"
    broken.look_now()
    assert GraphScanner(resources, world.app.outbox).run_once().repaired == {Rule.RECORD_DAMAGED: 1}
    assert is_looked_at_soon(broken), "while it could not be read nobody looked for what else is wrong"
    broken.settle()
    broken.look_now()
    assert GraphScanner(resources, world.app.outbox).run_once().repaired == {Rule.GRAPH_CONTRADICTED: 1}
    ends_well(broken)


def test_a_start_that_is_in_no_record_any_more_is_not_run_again(broken: Broken) -> None:
    """Its children would be scheduled a second time."""
    finished_emptied(broken)
    for name in ("decisions", "tasks"):
        broken.remove(name, f"{broken.id}/start")
    world = broken.world
    world.pump()
    assert world.process(broken.id).state is ProcessState.RUNNING
    broken.settle()
    broken.look_now()
    GraphScanner(world.app.resources, world.app.outbox).run_once()
    process = world.process(broken.id)
    assert process.state is ProcessState.BROKEN and process.error is not None
    assert (process.error.kind, process.error.task) == ("RecordsLost", "start")
    assert "not in the graph, and there is no Decision" in process.error.message


def is_looked_at_soon(broken: Broken) -> bool:
    soon = broken.world.store.now() + timedelta(seconds=2 * APPLY_TIMEOUT)
    return bool(broken.world.store.now() < graph_of(broken)["recoveryTime"] < soon)


def test_damage_that_no_rule_looks_at_is_mended_where_it_is_in_the_way(broken: Broken) -> None:
    """Of `attempts` the rules read nothing: they see a graph to be made anew, which can't be."""
    finished_emptied(broken)
    broken.change("decisions", broken.decision("part", "finished"), {"$set": {"attempts": "none"}})
    world, resources = broken.world, broken.world.app.resources
    world.pump()
    assert world.process(broken.id).state is ProcessState.RUNNING
    assert is_looked_at_soon(broken), "it is not waited for its idle deadline"
    broken.settle()
    broken.look_now()
    assert GraphScanner(resources, world.app.outbox).run_once().repaired == {}
    assert is_looked_at_soon(broken)
    broken.look_now()
    assert GraphScanner(resources, world.app.outbox).run_once().repaired == {Rule.GRAPH_CONTRADICTED: 1}
    ends_well(broken)


def test_decisions_that_nobody_scheduled_hold_up_no_end(broken: Broken) -> None:
    broken.db["decisions"].insert_one({"_id": f"{broken.id}/zzzz", "actor": "part", "state": "waiting", "epoch": 0})
    broken.world.pump()
    process = broken.world.process(broken.id)
    assert (process.state, process.result) == (ProcessState.FINISHED, RESULT)


def test_the_end_of_a_single_task_asks_for_nothing_more(world: World) -> None:
    asked: list[str] = []
    counts = Decisions.counts

    def counted(self: Decisions, process_ids: list[str]) -> dict[str, int]:
        asked.extend(process_ids)
        return counts(self, process_ids)

    with patch.object(Decisions, "counts", counted):
        assert world.run(world.app.process("single")(lambda: "done")) == "done"
        assert asked == []
        order = world.start("order", 3)
        assert world.bring_to_end(order).result == RESULT
    assert asked == [order]


@pytest.mark.parametrize("spoil", [finished_emptied, one_part_lost], ids=lambda f: f.__name__)
def test_the_graph_of_a_process_that_has_finished_is_put_in_order(
    over: Broken, spoil: Callable[[Broken], None]
) -> None:
    """A sweep reads in whole what is not at rest, each time anew."""
    before = graph_of(over)
    spoil(over)
    assert not is_at_rest(over)
    assert [(f.rule, f.repair) for f in findings(over)] == [(Rule.GRAPH_CONTRADICTED, Repair.REMAKE_GRAPH)]
    resources = over.world.app.resources
    done, after = health.repair(resources, health.look(resources, over.id))
    assert done == {Rule.GRAPH_CONTRADICTED: 1} and after.findings == ()
    assert sorted(graph_of(over)["finished"]) == sorted(before["finished"])
    assert is_at_rest(over)
    ends_well(over)


def is_at_rest(broken: Broken) -> bool:
    of_it = {"_id": {"$regex": f"^{broken.id}/"}}
    decisions = list(broken.db["decisions"].find(of_it).sort("_id", 1))
    process = broken.db["processes"].find_one({"_id": broken.id})
    return at_rest(Outline(process, [graph_of(broken)], [one["_id"] for one in decisions], decisions))


def test_a_live_decision_that_its_graph_lacks_comes_to_rest(over: Broken) -> None:
    """It can't be applied to a graph in which it is not; that would be tried for ever."""
    finished_emptied(over)
    past = over.world.store.now() - timedelta(seconds=1)
    over.change("decisions", over.decision("part"), {"$set": {"recoveryTime": past}})
    result = DecisionScanner(over.world.app.resources, over.world.app.outbox).run_once()
    assert result.repaired == {Rule.DECISION_NOT_APPLIED: 1}
    over.world.app.outbox.flush()
    assert is_at_rest(over)


def test_what_was_not_done_before_the_end_is_told(over: Broken) -> None:
    """The result was given to somebody: nothing is begun of such a process."""
    report = over.decision("report")
    over.change("graphs", over.id, {"$pull": {"finished": report.partition("/")[2]}})
    over.change("decisions", report, {"$set": {"state": "waiting"}, "$unset": {"outcome": 1}})
    before = graph_of(over)
    (finding,) = findings(over)
    assert (finding.rule, finding.repair) == (Rule.FINISHED_TOO_EARLY, Repair.REPORT)
    assert "finished, and its graph lacks 1 tasks that are not done" in finding.evidence
    resources = over.world.app.resources
    done, _ = health.repair(resources, health.look(resources, over.id))
    assert not done and graph_of(over) == before
    one_part_lost(over)
    part = next(one for one in over.db["decisions"].find({"actor": "part"}) if lacks(over, one["_id"]))
    past = over.world.store.now() - timedelta(seconds=1)
    over.change("decisions", part["_id"], {"$set": {"recoveryTime": past}})
    DecisionScanner(resources, over.world.app.outbox).run_once()
    assert over.world.pump() == 0 and graph_of(over)["notFinished"] == {}


def lacks(broken: Broken, decision: str) -> bool:
    return decision.partition("/")[2] not in graph_of(broken)["finished"]
