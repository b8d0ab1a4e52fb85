"""What `recovery show` tells of a task."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.console import Console

from recovery.cli.process_tree import Shown, tree
from recovery.records import Decision, DecisionState, LostAttempt, Process, Refused, VersionRefusal
from recovery.store.views.process_lookup import TaskLine


def shown(decision: Decision, unserved: dict[str, str], width: int) -> str:
    """The tree of a process with one task, in so many columns."""
    process = Process(id="p", type="render", args="")
    lines, decisions = [TaskLine("start", "render", None)], {"start": decision}
    found = Shown(process, 0, None, lines, decisions, {}, {}, unserved, {}, datetime.now(UTC))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(tree(found, width))
    return captured.get()


@pytest.mark.parametrize("width", [50, 60, 70, 80])
def test_a_command_of_a_hint_is_not_broken_over_lines(width: int) -> None:
    command = "`recovery actor unblock render`"
    decision = Decision(id="p/start", actor="render", state=DecisionState.QUEUED)
    text = shown(decision, {"render": f"render has been blocked for 3m: {command}"}, width)
    assert command in text
    assert all(len(line) <= width for line in text.splitlines())


def test_how_the_process_of_a_lost_attempt_ended() -> None:
    lost = LostAttempt(attempt=2, how="was ended by signal 9 (SIGKILL)")
    decision = Decision(
        id="p/start", actor="render", state=DecisionState.WAITING, attempts=3, timeouts=2, lost_attempt=lost
    )
    assert "3 attempts  2 timeouts  attempt 2: its process was ended by signal 9 (SIGKILL)" in shown(decision, {}, 200)


def test_many_tasks_that_wait_for_a_newer_worker_are_one_line_that_says_so() -> None:
    now = datetime.now(UTC)
    by = (VersionRefusal(version="1.0", since=now, why="missing a required argument: 'currency'"),)
    refused = Refused(count=1, attempts=0, pass_key="k", by=by)
    decisions = {
        f"t{number}": Decision(
            id=f"p/t{number}", actor="charge", state=DecisionState.DELAYED, refused=refused if number < 250 else None
        )
        for number in range(300)
    }
    lines = [TaskLine(task, "charge", None) for task in decisions]
    found = Shown(Process(id="p", type="order", args=""), 0, None, lines, decisions, {}, {}, {}, {}, now)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(tree(found, 200))
    waits = "waits for a newer worker: version 1.0 missing a required argument: 'currency'"
    assert f"300 × charge  delayed, 250 of them: {waits}" in shown.get()
