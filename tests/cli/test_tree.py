"""What `recovery show` tells of a task."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from recovery.cli.show import Shown
from recovery.cli.tree import tree
from recovery.records import Decision, DecisionState, LostAttempt, Process
from recovery.store.views.overview import TaskLine


def test_how_the_process_of_a_lost_attempt_ended() -> None:
    lost = LostAttempt(attempt=2, how="was ended by signal 9 (SIGKILL)")
    decision = Decision(
        id="p/start", actor="render", state=DecisionState.WAITING, attempts=3, timeouts=2, lost_attempt=lost
    )
    process = Process(id="p", type="render", args="")
    lines, decisions = [TaskLine("start", "render", None)], {"start": decision}
    found = Shown(process, 0, None, lines, decisions, {}, {}, {}, datetime.now(UTC))
    console = Console(width=200)
    with console.capture() as shown:
        console.print(tree(found, 200))
    assert "3 attempts  2 timeouts  attempt 2: its process was ended by signal 9 (SIGKILL)" in shown.get()
