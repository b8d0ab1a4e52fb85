"""Each rule on a whole process: the finding with its evidence, and a healthy look-alike left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from recovery.limits import WAITS_FOR
from recovery.records import Child, Decision, DecisionState, ErrorInfo, Graph, Outcome, Process, ProcessState
from recovery.rules import Repair, Rule, Snapshot, judge_process
from recovery.rules.graph_rules import start_not_registered
from tests.rules.surroundings import JUST_NOW, LONG_AGO, MARGIN, NOW, SOON, TICK, around
from tests.sweep import shapes

WAITING, QUEUED, WORKING = DecisionState.WAITING, DecisionState.QUEUED, DecisionState.WORKING
LATE = {
    "state": ProcessState.BROKEN,
    "error": ErrorInfo(kind="ProcessTimeout", message="too late"),
    "recovery_time": None,
}
FINISHED = DecisionState.FINISHED


def snapshot(
    decisions: Iterable[Decision] = (), graph: dict[str, Any] | None = None, tasks: Iterable[str] = (), **process: Any
) -> Snapshot:
    """A process that has been running for an hour. Its Task records are those of its decisions and `tasks`."""
    by_task = {one.task_id: one for one in decisions}
    return Snapshot(
        process_id="p",
        process=Process(
            id="p", type="order", args="", **{"started_at": LONG_AGO, "recovery_time": SOON, **process}
        ),
        graph=None if graph is None else Graph(id="p", **{"touched_at": LONG_AGO, "recovery_time": SOON, **graph}),
        decisions=by_task,
        tasks=frozenset([*by_task, *tasks]),
    )  # fmt: skip


def decision(task: str, state: DecisionState = WAITING, **changes: Any) -> Decision:
    live = state in (QUEUED, WORKING)
    made = Decision(id=f"p/{task}", actor="add", state=state, recovery_time=SOON if live else None)
    return made.evolve(**({"queued_at": NOW} if state is QUEUED else {})).evolve(**changes)


def finished(task: str, at: datetime = LONG_AGO, children: Iterable[str] = (), **changes: Any) -> Decision:
    made = tuple(Child(id=child, actor="add", args="") for child in children)
    return decision(task, FINISHED, outcome=Outcome(pass_key="k", finished_at=at, value="1"), children=made, **changes)


def without_tasks(judged: Snapshot, *tasks: str) -> Snapshot:
    return replace(judged, tasks=judged.tasks - set(tasks))


def is_open(*tasks: str) -> dict[str, datetime]:
    return dict.fromkeys(tasks, LONG_AGO)


def failed(task: str, **changes: Any) -> Decision:
    error = ErrorInfo(kind="ValueError", message="no")
    return decision(task, FINISHED, outcome=Outcome(pass_key="k", finished_at=LONG_AGO, error=error), **changes)


def broken(
    y: Decision,
    graph: dict[str, Any] | None = None,
    bad: Decision | None = None,
    more: Iterable[Decision] = (),
    **process: Any,
) -> Snapshot:
    """A broken process: its start scheduled `bad`, which failed, and `x`, which is done; y waits for both, or does what
    is said."""
    known = {"finished": ("start", "x"), "not_finished": is_open("bad", "y"), "failed": {"bad": True}}
    links = {"links": {"y": {"bad": True}} if y.state is WAITING else {}}
    decisions = [
        finished("start", children=["bad", "x", "y", *(one.task_id for one in more)]),
        bad or failed("bad"),
        finished("x"),
        y,
        *more,
    ]
    error = ErrorInfo(kind="E", message="no", task="bad")
    ended = {"state": ProcessState.BROKEN, "ended_at": LONG_AGO, "recovery_time": None, "error": error}
    return snapshot(decisions, {**known, **links, **(graph or {})}, **{**ended, **process})


def without(judged: Snapshot, task: str) -> Snapshot:
    """Nothing is left of a task."""
    left = {key: one for key, one in judged.decisions.items() if key != task}
    return replace(judged, decisions=left, tasks=judged.tasks - {task})


Case = tuple[str, Snapshot, Rule, str, Repair, str]

FOUND: list[Case] = [
    (
        "nothing but the process",
        snapshot(),
        Rule.START_NOT_REGISTERED, "p", Repair.REGISTER_START,
        "no graph, no start task, no start decision; nothing decided",
    ),
    (
        "start cut off after the task",
        snapshot(tasks=["start"]),
        Rule.START_NOT_REGISTERED, "p", Repair.REGISTER_START, "no graph, no start decision; nothing decided",
    ),
    (
        "start cut off before the decision",
        snapshot(graph={"not_finished": is_open("start")}, tasks=["start"]),
        Rule.START_NOT_REGISTERED, "p", Repair.REGISTER_START, "no start decision; nothing decided",
    ),
    (
        "finished and open in the graph",
        snapshot([finished("start")], {"not_finished": is_open("start")}),
        Rule.DECISION_NOT_APPLIED, "p/start", Repair.APPLY, "finished 11:00:00, open in the graph",
    ),
    (
        "a child without records",
        snapshot([finished("start", children=["a", "b"]), decision("a", QUEUED)],
                 {"finished": ("start",), "not_finished": is_open("a", "b")}),
        Rule.CHILDREN_MISSING, "p/start", Repair.APPLY, "1 of 2 children lack their records, first b",
    ),
    (
        "a child without a decision, though with a task",
        snapshot([finished("start", children=["a"])], {"finished": ("start",), "not_finished": is_open("a")},
                 tasks=["a"]),
        Rule.DECISION_MISSING, "p/a", Repair.RESTORE, "open in the graph, and there is no Decision; start scheduled it",
    ),
    (
        "a child whose result is lost",
        snapshot([finished("start", children=["a"])], {"finished": ("start", "a")}, tasks=["a"]),
        Rule.DECISION_MISSING, "p/a", Repair.RESTORE,
        "finished in the graph, and there is no Decision; start scheduled it",
    ),
    (
        "a child without a task, though with a decision",
        without_tasks(snapshot([finished("start", children=["a"]), decision("a", WORKING)],
                               {"finished": ("start",), "not_finished": is_open("a")}), "a"),
        Rule.TASK_MISSING, "p/a", Repair.RESTORE, "open in the graph, and there is no Task; start scheduled it",
    ),
    (
        "a start decided, and without a task",
        without_tasks(snapshot([finished("start")], {"not_finished": is_open("start")}), "start"),
        Rule.TASK_MISSING, "p/start", Repair.RESTORE,
        "open in the graph, and there is no Task; the process tells what it was",
    ),
    (
        "a task that nobody knows",
        snapshot([finished("start")], {"finished": ("start",), "not_finished": is_open("a")}),
        Rule.GRAPH_CONTRADICTED, "p", Repair.REMAKE_GRAPH,
        "it names 1 that nobody scheduled, first a",
    ),
    (
        "no graph",
        snapshot([finished("start", children=["a"]), decision("a", QUEUED)]),
        Rule.GRAPH_MISSING, "p", Repair.REBUILD_GRAPH, "1 of 2 decisions are finished, and there is no graph",
    ),
    (
        "finished in the graph only",
        snapshot([finished("start", children=["a"]), decision("a", WORKING)], {"finished": ("start", "a")}),
        Rule.FINISHED_UNDECIDED, "p/a", Repair.REOPEN, "finished in the graph, working in its decision",
    ),
    (
        "waits for what is finished, and for what nobody knows",
        snapshot([finished("start"), decision("a"), decision("b", QUEUED)],
                 {"not_finished": is_open("a", "b"), "links": {"a": {"start": True, "b": True, "x": True}},
                  "finished": ("start",)}),
        Rule.DEAD_LINK, "p/a", Repair.DROP_LINKS, "waits for start (finished), x (unknown)",
    ),
    (
        "wait for each other",
        snapshot([finished("start"), decision("a"), decision("b"), decision("c")],
                 {"not_finished": is_open("a", "b", "c"), "finished": ("start",),
                  "links": {"a": {"b": True}, "b": {"c": True}, "c": {"b": True}}}),
        Rule.CYCLE, "p/b", Repair.BREAK, "b waits for c waits for b",
    ),
    (
        "waits for itself",
        snapshot([finished("start"), decision("a")],
                 {"not_finished": is_open("a"), "finished": ("start",), "links": {"a": {"a": True}}}),
        Rule.CYCLE, "p/a", Repair.BREAK, "a waits for a",
    ),
    (
        "waits for what it scheduled",
        snapshot([decision("start", QUEUED), decision("a", children=[Child(id="b", actor="add", args="")]),
                  decision("b", QUEUED)],
                 {"not_finished": is_open("start", "a", "b"), "links": {"a": {"b": True}}}),
        Rule.CYCLE, "p/a", Repair.BREAK, "a waits for b waits for a",
    ),
    (
        "finished, with an open task",
        snapshot([finished("start"), decision("a", QUEUED)], {"finished": ("start",), "not_finished": is_open("a")},
                 state=ProcessState.FINISHED, recovery_time=None),
        Rule.FINISHED_TOO_EARLY, "p", Repair.REPORT, "finished, and 1 tasks are open, first a",
    ),
    (
        "finished, with a task that its graph lacks and that is not done",
        snapshot([finished("start", children=["a", "b"]), finished("a"), decision("b", QUEUED)],
                 {"finished": ("start",)}, state=ProcessState.FINISHED, recovery_time=None),
        Rule.FINISHED_TOO_EARLY, "p", Repair.REPORT,
        "finished, and its graph lacks 1 tasks that are not done, first b",
    ),
    (
        "finished, with tasks that its graph lacks",
        snapshot([finished("start", children=["a"]), finished("a")], {"finished": ()},
                 state=ProcessState.FINISHED, recovery_time=None),
        Rule.GRAPH_CONTRADICTED, "p", Repair.REMAKE_GRAPH,
        "it lacks 2 of 2 tasks that were scheduled, first a",
    ),
    (
        "a start that is in neither graph nor decisions",
        snapshot([finished("a")], {"finished": ("a",)}),
        Rule.DECISION_MISSING, "p/start", Repair.BREAK,
        "not in the graph, and there is no Decision, and no decision that tells what it was",
    ),
    (
        "records of no process",
        replace(snapshot([decision("start", WORKING)], {"not_finished": is_open("start")}), process=None),
        Rule.ORPHAN, "p", Repair.REPORT, "1 graph, 1 tasks, 1 decisions, and no process of that id",
    ),
    (
        "a failure that did not break the process",
        snapshot([finished("start")], {"not_finished": is_open("start"), "failed": {"start": True}}),
        Rule.DECISION_NOT_APPLIED, "p/start", Repair.APPLY, "finished 11:00:00, failed, and the process still runs",
    ),
    (
        "an open graph without a deadline",
        snapshot([decision("start", QUEUED)], {"not_finished": is_open("start"), "recovery_time": None}),
        Rule.DEADLINE_MISSING, "p", Repair.STAMP, "open graph without recoveryTime",
    ),
    (
        "waits for nothing",
        snapshot([decision("start")], {"not_finished": is_open("start")}),
        Rule.READY_NOT_QUEUED, "p/start", Repair.ENQUEUE_READY, "waiting for nothing",
    ),
    (
        "waits for nothing any more",
        snapshot([finished("start"), decision("a")],
                 {"not_finished": is_open("a"), "links": {"a": {}}, "finished": ("start",)}),
        Rule.READY_NOT_QUEUED, "p/a", Repair.ENQUEUE_READY, "waiting for nothing",
    ),
    (
        "all done",
        snapshot([finished("start")], {"finished": ("start",)}),
        Rule.FINISH_NOT_RECORDED, "p", Repair.FINISH_PROCESS, "nothing is open",
    ),
    (
        "no deadline",
        snapshot([decision("start", QUEUED)], {"not_finished": is_open("start")}, recovery_time=None),
        Rule.DEADLINE_MISSING, "p", Repair.STAMP, "running without recoveryTime",
    ),
    (
        "a decision's own rule",
        snapshot([decision("start", WORKING, recovery_time=LONG_AGO)], {"not_finished": is_open("start")}),
        Rule.WORK_TIMEOUT, "p/start", Repair.REQUEUE, "working for None, deadline 11:00:00.000000 past",
    ),
    (
        "a sibling of what broke the process",
        snapshot([decision("a", WORKING, recovery_time=LONG_AGO)],
                 {"not_finished": is_open("a", "b"), "failed": {"b": True}}, state=ProcessState.BROKEN,
                 error=ErrorInfo(kind="E", message="no", task="b")),
        Rule.WORK_TIMEOUT, "p/a", Repair.REQUEUE, "working for None, deadline 11:00:00.000000 past",
    ),
    (
        "broken, a sibling is ready and not queued", broken(decision("y"), {"links": {}}),
        Rule.READY_NOT_QUEUED, "p/y", Repair.ENQUEUE_READY, "waiting for nothing",
    ),
    (
        "broken, and its graph is gone", replace(broken(decision("y")), graph=None),
        Rule.GRAPH_MISSING, "p", Repair.REBUILD_GRAPH, "3 of 4 decisions are finished, and there is no graph",
    ),
    (
        "broken, a sibling is done and not applied", broken(finished("y"), {"links": {}}),
        Rule.DECISION_NOT_APPLIED, "p/y", Repair.APPLY, "finished 11:00:00, open in the graph",
    ),
    (
        "broken, another task failed as well and is not applied", broken(failed("y"), {"links": {}}),
        Rule.DECISION_NOT_APPLIED, "p/y", Repair.APPLY, "finished 11:00:00, open in the graph",
    ),
    (
        "broken, and what failed is done after all", broken(decision("y"), bad=finished("bad")),
        Rule.DECISION_NOT_APPLIED, "p/bad", Repair.APPLY, "finished 11:00:00, failed before in the graph",
    ),
    (
        "broken, what failed has failed once more, and that is not applied",
        broken(decision("y"), bad=failed("bad", restarts=1)),
        Rule.DECISION_NOT_APPLIED, "p/bad", Repair.APPLY, "finished 11:00:00, failed before in the graph",
    ),
    (
        "broken, the records of a sibling are gone", without(broken(decision("y")), "y"),
        Rule.CHILDREN_MISSING, "p/start", Repair.APPLY, "1 of 3 children lack their records, first y",
    ),
    (
        "broken, the task of a sibling is gone", without_tasks(broken(decision("y")), "y"),
        Rule.TASK_MISSING, "p/y", Repair.RESTORE, "open in the graph, and there is no Task; start scheduled it",
    ),
    (
        "broken, a sibling is finished in the graph alone",
        broken(decision("y", QUEUED), {"finished": ("start", "x", "y"), "not_finished": is_open("bad")}),
        Rule.FINISHED_UNDECIDED, "p/y", Repair.REOPEN, "finished in the graph, queued in its decision",
    ),
    (
        "broken, a sibling waits for what is done", broken(decision("y"), {"links": {"y": {"x": True, "bad": True}}}),
        Rule.DEAD_LINK, "p/y", Repair.DROP_LINKS, "waits for x (finished)",
    ),
    (
        "broken, and siblings wait for each other",
        broken(decision("y"), {
            "finished": ("start", "x"), "not_finished": is_open("bad", "y", "z"),
            "links": {"y": {"z": True}, "z": {"y": True}}}, more=[decision("z")]),
        Rule.CYCLE, "p/y", Repair.BREAK, "y waits for z waits for y",
    ),
    (
        "broken for its time, its start cut off before the decision",
        snapshot(graph={"not_finished": is_open("start")}, tasks=["start"], **LATE),
        Rule.START_NOT_REGISTERED, "p", Repair.REGISTER_START, "no start decision; nothing decided",
    ),
    (
        "broken, a deadline of a sibling is far off",
        broken(decision("y", QUEUED, recovery_time=NOW + timedelta(days=40))),
        Rule.TIME_IMPOSSIBLE, "p/y", Repair.SET_TIME,
        "its deadline is 40 days from now, and nobody sets one so far off",
    ),
]  # fmt: skip

HEALTHY: list[tuple[str, Snapshot]] = [
    ("no process", replace(snapshot(), process=None)),
    ("start under way", snapshot(started_at=JUST_NOW)),
    ("start under way for as long as may be", snapshot(started_at=NOW - MARGIN)),
    ("start done", snapshot([decision("start", QUEUED)], {"not_finished": is_open("start")})),
    ("apply under way", snapshot([finished("start", at=JUST_NOW)], {"not_finished": is_open("start")})),
    (
        "just ended with an error, which stays open",
        snapshot([finished("start", JUST_NOW)], {"not_finished": is_open("start"), "failed": {"start": True}}),
    ),
    (
        "records of children that its graph learnt of a moment ago",
        snapshot([finished("start", children=["a"])],
                 {"finished": ("start",), "not_finished": is_open("a"), "touched_at": JUST_NOW}, tasks=["a"]),
    ),
    (
        "its message is still to come: it is looked at in a day",
        snapshot([decision("start", QUEUED, recovery_time=NOW + 1.1 * timedelta(seconds=WAITS_FOR))],
                 {"not_finished": is_open("start")}),
    ),
    (
        "finished in the graph a moment after its decision was read",
        snapshot([finished("start", children=["a"]), decision("a", WORKING)],
                 {"finished": ("start", "a"), "touched_at": JUST_NOW}),
    ),
    (
        "a ring that is none: two wait for one, and one for both",
        snapshot([decision("start", QUEUED), decision("a"), decision("b"), decision("c")],
                 {"not_finished": is_open("start", "a", "b", "c"),
                  "links": {"a": {"start": True}, "b": {"start": True}, "c": {"a": True, "b": True}}}),
    ),
    (
        "all children there",
        snapshot([finished("start", children=["a"]), decision("a", QUEUED)],
                 {"finished": ("start",), "not_finished": is_open("a")}),
    ),
    (
        "children of what is not applied yet",
        snapshot([finished("start", at=JUST_NOW, children=["a"])], {"not_finished": is_open("start")}),
    ),
    (
        "waits for another",
        snapshot([finished("start"), decision("a", QUEUED), decision("b")],
                 {"not_finished": is_open("a", "b"), "links": {"b": {"a": True}}, "finished": ("start",)}),
    ),
    (
        "ready, its enqueue under way",
        snapshot([decision("start")], {"not_finished": is_open("start"), "touched_at": JUST_NOW}),
    ),
    ("finish under way", snapshot([finished("start")], {"finished": ("start",), "touched_at": JUST_NOW})),
    (
        "finished for long",
        snapshot([finished("start")], {"finished": ("start",), "recovery_time": None},
                 state=ProcessState.FINISHED, recovery_time=None),
    ),
    ("broken, with what never came to run", broken(decision("y"))),
    ("broken, a sibling goes on", broken(decision("y", QUEUED))),
    (
        "broken, all others are done",
        broken(finished("y"), {"finished": ("start", "x", "y"), "not_finished": is_open("bad")}),
    ),
    ("broken, what failed is tried again", broken(decision("y"), bad=decision("bad", QUEUED, restarts=1))),
    ("broken for a task whose records are lost",
     without(broken(decision("y"), {"failed": {"start": True, "bad": True}}), "start")),
    ("broken for a task of which one record is lost", without_tasks(broken(decision("y"), bad=decision("bad")), "bad")),
    ("broken for a circle", broken(decision("y"), {
        "finished": ("start", "x"), "not_finished": is_open("bad", "y"), "failed": {"bad": True},
        "links": {"bad": {"y": True}, "y": {"bad": True}}}, bad=decision("bad"))),
    ("broken for its start, whose records are lost",
     snapshot(**{**LATE, "error": ErrorInfo(kind="ValueError", message="no", task="start")})),
    ("broken for its start, whose decision is lost",
     snapshot(graph={"not_finished": is_open("start"), "failed": {"start": True}}, tasks=["start"], **LATE)),
    ("broken, and its own times are odd", broken(decision("y"), started_at=NOW + timedelta(days=9))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "rule", "record", "repair", "evidence"), [pytest.param(*case, id=what) for what, *case in FOUND]
)
def test_found(judged: Snapshot, rule: Rule, record: str, repair: Repair, evidence: str) -> None:
    (found,) = judge_process(judged, around())
    assert (found.rule, found.record, found.repair, found.evidence) == (rule, record, repair, evidence)


@pytest.mark.parametrize("judged", [pytest.param(judged, id=what) for what, judged in HEALTHY])
def test_left_alone(judged: Snapshot) -> None:
    assert judge_process(judged, around()) == []


@pytest.mark.parametrize("when", [LONG_AGO, NOW - MARGIN - TICK])
@pytest.mark.parametrize(
    "cut_off",
    [
        lambda when: snapshot(started_at=when),
        lambda when: snapshot([finished("start", at=when)], {"not_finished": is_open("start")}),
        lambda when: snapshot([decision("start")], {"not_finished": is_open("start"), "touched_at": when}),
        lambda when: snapshot([finished("start")], {"finished": ("start",), "touched_at": when}),
    ],
    ids=["start", "apply", "enqueue", "finish"],
)
def test_a_step_counts_as_cut_off_after_a_while(cut_off: Callable[[datetime], Snapshot], when: datetime) -> None:
    assert len(judge_process(cut_off(when), around())) == 1
    assert judge_process(cut_off(NOW - MARGIN + TICK), around()) == []


def test_a_start_that_was_decided_is_no_start_to_be_registered() -> None:
    assert not list(start_not_registered(snapshot([finished("start")]), around()))


def test_one_finding_per_record_and_repair() -> None:
    """A finished decision whose deadline is past is found by itself and in the graph: applied once."""
    twice = finished("start", recovery_time=LONG_AGO)
    (found,) = judge_process(snapshot([twice], {"not_finished": is_open("start")}), around())
    assert (found.rule, found.evidence) == (Rule.DECISION_NOT_APPLIED, "finished, not known to be applied")


def test_all_that_is_wrong_is_found_that_on_decisions_first() -> None:
    judged = snapshot(
        [
            finished("start", children=["a", "b", "c", "d"]),
            decision("a", WORKING, recovery_time=LONG_AGO),
            finished("b"),
            decision("c"),
        ],
        {"not_finished": is_open("a", "b", "c", "d"), "finished": ("start",)},
        recovery_time=None,
    )
    assert [(f.rule, f.record) for f in judge_process(judged, around())] == [
        (Rule.WORK_TIMEOUT, "p/a"),
        (Rule.DECISION_NOT_APPLIED, "p/b"),
        (Rule.CHILDREN_MISSING, "p/start"),
        (Rule.READY_NOT_QUEUED, "p/c"),
        (Rule.DEADLINE_MISSING, "p"),
    ]


@pytest.mark.parametrize("shape", shapes.HEALTHY, ids=lambda shape: shape.__name__)
def test_large_processes_that_are_healthy(shape: shapes.Shape) -> None:
    assert judge_process(shape("0" * 32, NOW).to_snapshot(), around()) == []


@pytest.mark.parametrize("shape", shapes.BROKEN, ids=lambda shape: shape.__name__)
def test_large_processes_with_one_thing_wrong(shape: shapes.Shape) -> None:
    statistics = shapes.queue_statistics(NOW)
    surroundings = replace(around(), queues={statistics.id: statistics})
    assert [found.rule for found in judge_process(shape("0" * 32, NOW).to_snapshot(), surroundings)] == [
        shapes.BROKEN[shape]
    ]
