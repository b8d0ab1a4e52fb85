"""What operators are shown and do, held against what goes on meanwhile: found by chance, and made small."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.faults import Course, Died, Fault, Kind, Plan
from tests.stateful.checks import Memory
from tests.stateful.cluster import BROKEN_LATE, IDLE, LATE, Cluster, go_on, work
from tests.stateful.kills import node
from tests.stateful.rest import bring_to_rest

CUSTOM_ID = "the order"


def scan(cluster: Cluster, name: str) -> None:
    error = cluster.scan(cluster.member(), name, 100)
    assert error is None, error


def listed(cluster: Cluster) -> set[tuple[str, str]]:
    """(task, kind of its error) of what an operator has to look at."""
    found = cluster.database["interruptions"].find()
    return {(document["_id"].partition("/")[2], document["kind"]) for document in found}


def process(cluster: Cluster) -> dict[str, Any]:
    (found,) = cluster.database["processes"].find()
    return dict(found)


@pytest.mark.parametrize("by", ["a process", "a task", "all"])
def test_a_process_that_was_late_and_in_which_a_task_failed_then_is_restarted(cluster: Cluster, by: str) -> None:
    """It is listed for both, and for neither once it runs again."""
    go_on(on_the_spot=False)
    program = node(1, [node(2, raises="until mended"), []])
    process_id = cluster.start(program, CUSTOM_ID, BROKEN_LATE)
    work(cluster)
    cluster.passing.pass_by(LATE + 1)
    scan(cluster, "processes")
    work(cluster)
    ((task, _),) = listed(cluster) - {("start", "ProcessTimeout")}
    assert listed(cluster) == {("start", "ProcessTimeout"), (task, "Raised")}
    cluster.mended = True
    cluster.restart(cluster.member(), None if by == "all" else process_id, task if by == "a task" else None)
    assert (process(cluster)["state"], listed(cluster)) == ("running", set())
    bring_to_rest(cluster, {CUSTOM_ID: program}, Memory(restarts=Counter({process_id: 1})))


def test_a_task_fails_while_a_scanner_breaks_its_process_for_its_time_out(cluster: Cluster) -> None:
    """The scanner has listed the process already: it is broken for the task alone, and listed for nothing else."""
    go_on(on_the_spot=False)
    program = node(1, [node(2, raises="until mended"), []])
    process_id = cluster.start(program, CUSTOM_ID, BROKEN_LATE)
    work(cluster)
    cluster.passing.pass_by(LATE + 1)
    scanner = Course(lambda: scan(cluster, "processes"), Plan(Fault(Kind.PAUSE, 0, "ProcessDeadlines.break_late")))
    assert not scanner.go()
    work(cluster)
    scanner.finish()
    assert {kind for _, kind in listed(cluster)} == {"Raised"}
    cluster.mended = True
    cluster.restart(cluster.member(), process_id, None)
    assert (process(cluster)["state"], listed(cluster)) == ("running", set())
    bring_to_rest(cluster, {CUSTOM_ID: program}, Memory(restarts=Counter({process_id: 1})))


@pytest.mark.parametrize("at", ["Interruptions.add", "ProcessDeadlines.break_late"])
def test_a_task_fails_and_is_restarted_while_a_scanner_breaks_its_process_for_its_time_out(
    cluster: Cluster, at: str
) -> None:
    """What the scanner lists is of a life that is over: the process is late in its next one, and broken when a scanner
    has listed that."""
    go_on(on_the_spot=False)
    program = node(1, [node(2, raises="until mended"), []])
    process_id = cluster.start(program, CUSTOM_ID, BROKEN_LATE)
    work(cluster)
    cluster.passing.pass_by(LATE + 1)
    scanner = Course(lambda: scan(cluster, "processes"), Plan(Fault(Kind.PAUSE, 0, at)))
    assert not scanner.go()
    work(cluster)
    cluster.mended = True
    cluster.restart(cluster.member(), process_id, None)
    scanner.finish()
    assert (process(cluster)["state"], listed(cluster)) == ("running", set())
    bring_to_rest(cluster, {CUSTOM_ID: program}, Memory(restarts=Counter({process_id: 1})))


def test_a_scanner_that_was_too_late_to_break_a_process_comes_to_take_it_off_the_list(cluster: Cluster) -> None:
    """It was broken for a task, restarted, and then broken by another scanner."""
    go_on(on_the_spot=False)
    program = node(1, [node(2, raises="until mended"), []])
    process_id = cluster.start(program, CUSTOM_ID, BROKEN_LATE)
    work(cluster)
    cluster.passing.pass_by(LATE + 1)
    pauses = (Fault(Kind.PAUSE, 0, step) for step in ("ProcessDeadlines.break_late", "Interruptions.remove_kind"))
    scanner = Course(lambda: scan(cluster, "processes"), Plan(*pauses))
    assert not scanner.go()
    work(cluster)
    assert not scanner.go() and scanner.at == "Interruptions.remove_kind"
    cluster.restart(cluster.member(), process_id, None)
    cluster.passing.pass_by(IDLE + 1)
    scan(cluster, "processes")
    scanner.finish()
    assert (process(cluster)["state"], listed(cluster)) == ("broken", {("start", "ProcessTimeout")})


@pytest.mark.parametrize("end", ["finished", "aborted"])
def test_a_process_ends_while_a_scanner_breaks_it_for_its_time_out(cluster: Cluster, end: str) -> None:
    """The scanner has listed it already; nothing is broken, and nobody is to look at it."""
    process_id = cluster.start(node(1), CUSTOM_ID, BROKEN_LATE)
    cluster.passing.pass_by(LATE + 1)
    scanner = Course(lambda: scan(cluster, "processes"), Plan(Fault(Kind.PAUSE, 0, "ProcessDeadlines.break_late")))
    assert not scanner.go()
    assert listed(cluster) == {("start", "ProcessTimeout")}
    if end == "finished":
        work(cluster)
    else:
        cluster.abort(cluster.member(), process_id)
    scanner.finish()
    assert (process(cluster)["state"], listed(cluster)) == (end, set())


@pytest.mark.parametrize("by", ["a process", "a task", "all"])
def test_a_restart_was_cut_off_after_its_commit_point_and_another_goes_on(cluster: Cluster, by: str) -> None:
    """The process runs, and only then it is listed no longer."""
    go_on(on_the_spot=False)
    program = node(1, [node(2, raises="until mended"), []])
    process_id = cluster.start(program, CUSTOM_ID)
    work(cluster)
    work(cluster)
    ((task, _),) = listed(cluster)
    cluster.mended = True
    with pytest.raises(Died):
        Course(
            lambda: cluster.restart(cluster.member(), process_id),
            Plan(Fault(Kind.DIES_AFTER, 0, "RestartUpdates.queue")),
        ).finish()
    assert (process(cluster)["state"], listed(cluster)) == ("broken", {(task, "Raised")})
    cluster.restart(cluster.member(), None if by == "all" else process_id, task if by == "a task" else None)
    assert (process(cluster)["state"], listed(cluster)) == ("running", set())
    bring_to_rest(cluster, {CUSTOM_ID: program}, Memory(restarts=Counter({process_id: 2})))


def test_an_abort_is_cut_off_while_a_scanner_holds_what_it_read_before(cluster: Cluster) -> None:
    """The scanner's word that the process is over must not hide the abort from those who go on with it."""
    process_id = cluster.start(node(1, raises="always"), CUSTOM_ID)
    work(cluster)
    cluster.database["graphs"].update_one({}, [{"$set": {"recoveryTime": {"$subtract": ["$$NOW", 1000]}}}])
    scanner = Course(lambda: scan(cluster, "graphs"), Plan(Fault(Kind.PAUSE, 0, "GraphRecovery.clear_deadlines")))
    assert not scanner.go()
    abort = Course(
        lambda: cluster.abort(cluster.member(), process_id), Plan(Fault(Kind.DIES_AFTER, 0, "Aborts.end_decisions"))
    )
    assert abort.go() and isinstance(abort.error, Died)
    scanner.finish()
    assert (process(cluster)["state"], listed(cluster)) == ("aborted", {("start", "Raised")})
    bring_to_rest(cluster, {CUSTOM_ID: node(1, raises="always")}, Memory(aborts={process_id}))
    assert listed(cluster) == set()


def test_an_abort_that_a_redo_overtakes_aborts_all_the_same(cluster: Cluster) -> None:
    """Who asked for it was told that it is done."""
    process_id = cluster.start(node(1), CUSTOM_ID)
    abort = Course(lambda: cluster.abort(cluster.member(), process_id), Plan(Fault(Kind.PAUSE, 0, "Aborts.end")))
    assert not abort.go()
    cluster.redo(cluster.member(), process_id, 0)
    abort.finish()
    assert process(cluster)["state"] == "aborted"
    bring_to_rest(cluster, {CUSTOM_ID: node(1)}, Memory(aborts={process_id}, restarts=Counter({process_id: 1})))
