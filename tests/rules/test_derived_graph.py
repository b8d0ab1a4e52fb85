"""The graph that decisions come to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.limits import LONGEST
from recovery.records import Child, Decision, DecisionState, ErrorInfo, Graph, Outcome, Process
from recovery.rules.derived_graph import graph_of, says, still_to_come
from tests.rules.surroundings import LONG_AGO, NOW, SOON

PROCESS = Process(id="p", type="order", args="", epoch=3, idle_timeout=70.0)
FIRST_LOOK = 20.0


def finished(task: str, *children: Child, waits: tuple[str, ...] = (), error: bool = False) -> Decision:
    failure = ErrorInfo(kind="ValueError", message="no") if error else None
    outcome = Outcome(pass_key="k", value=None if error else "1", error=failure, waits=waits)
    return Decision(id=f"p/{task}", actor="a", state=DecisionState.FINISHED, outcome=outcome, children=children)


def child(task: str, *deps: str) -> Child:
    return Child(id=task, actor="a", args="", deps=deps)


def derived(*decisions: Decision, first_look: float = FIRST_LOOK) -> Graph:
    return graph_of(PROCESS, {one.task_id: one for one in decisions}, NOW, first_look)


def test_of_a_process_of_which_nothing_is_decided_its_start_is_open() -> None:
    assert derived() == Graph(
        id="p",
        epoch=3,
        not_finished={"start": NOW},
        idle_timeout=70.0,
        touched_at=NOW,
        recovery_time=NOW + timedelta(seconds=FIRST_LOOK),
    )


def test_what_is_finished_is_finished_and_its_children_are_open_and_wait() -> None:
    start = finished("start", child("one"), child("two", "one"), child("three", "one", "two"))
    graph = derived(start, finished("one"), Decision(id="p/two", actor="a", restarts=2))
    assert graph.finished == ("start", "one")
    assert graph.not_finished == {"two": NOW, "three": NOW}
    assert graph.links == {"three": {"two": True}}, "what has ended is waited for no more"
    assert graph.restarted == {"two": 2}
    assert graph.failed == {}


def test_what_ended_with_an_error_stays_open_and_schedules_nothing() -> None:
    graph = derived(finished("start", child("one"), child("two", "one")), finished("one", child("three"), error=True))
    assert graph.not_finished == {"one": NOW, "two": NOW}
    assert graph.finished == ("start",)
    assert graph.failed == {"one": True}
    assert graph.links == {"two": {"one": True}}


def test_who_waits_for_a_promise_waits_for_the_children_that_it_promises() -> None:
    split = finished("split", child("part"), waits=("part",))
    graph = derived(finished("start", child("split"), child("sum", "split")), split)
    assert graph.links == {"sum": {"part": True}}


def test_a_first_look_too_far_off_for_a_date_is_the_longest_there_is() -> None:
    assert derived(first_look=1e300).recovery_time == NOW + timedelta(seconds=LONGEST)


@pytest.mark.parametrize(
    ("deps", "expected"),
    [
        ((), []),
        (("done",), []),
        (("open",), ["open"]),
        (("nested",), ["open"]),
        (("nested", "other"), ["other", "open"]),
        (("circle",), []),
        (("open", "nested"), ["open"]),
        (("open", "done", "done"), ["open"]),
    ],
)
def test_what_is_still_to_come_is_found_through_promises_within_promises(
    deps: tuple[str, ...], expected: list[str]
) -> None:
    applied = {
        "done": finished("done"),
        "inner": finished("inner", waits=("open",)),
        "nested": finished("nested", waits=("done", "inner")),
        "circle": finished("circle", waits=("circle", "done")),
        "without": Decision(id="p/without", actor="a", state=DecisionState.FINISHED),
    }
    assert sorted(still_to_come(deps, applied)) == sorted(expected)
    assert still_to_come(["without"], applied) == [], "it ended with nothing, so it promises nothing"


def test_two_graphs_say_the_same_whatever_their_times_and_their_order() -> None:
    graph = Graph(
        id="p",
        not_finished={"a": NOW, "b": NOW},
        links={"b": {"a": True}, "a": {}},
        finished=("s", "t"),
        failed={"a": True},
        restarted={"a": 1},
        touched_at=NOW,
        recovery_time=SOON,
    )
    other = graph.evolve(
        not_finished={"b": LONG_AGO, "a": LONG_AGO}, links={"b": {"a": True}}, finished=("t", "s"), recovery_time=None
    )
    assert says(graph) == says(other)


@pytest.mark.parametrize(
    "change",
    [
        {"not_finished": {"a": NOW}},
        {"links": {"b": {"s": True}}},
        {"finished": ("s",)},
        {"failed": {}},
        {"restarted": {"a": 2}},
    ],
    ids=str,
)
def test_graphs_that_differ_in_what_follows_from_decisions_say_something_else(change: dict[str, object]) -> None:
    graph = Graph(
        id="p",
        not_finished={"a": NOW, "b": NOW},
        links={"b": {"a": True}},
        finished=("s", "t"),
        failed={"a": True},
        restarted={"a": 1},
    )
    assert says(graph) != says(graph.evolve(**change))
