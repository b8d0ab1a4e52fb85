"""Whether a process is still as it was seen, and which of its tasks are ready."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recovery.records import Graph, Process, ProcessState

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SEEN = Process(id="p", type="order", args="[[],{}]", epoch=1, reopened=2)


@pytest.mark.parametrize("changes", [{"state": ProcessState.BROKEN}, {"epoch": 2}, {"reopened": 3}], ids=str)
def test_a_process_that_was_ended_restarted_or_reopened_is_not_as_it_was_seen(changes: dict[str, Any]) -> None:
    assert not SEEN.evolve(**changes).is_as(SEEN)


def test_other_changes_of_a_process_do_not_count() -> None:
    assert SEEN.evolve(recovery_time=NOW, timed_out_at=NOW).is_as(SEEN)
    assert SEEN.evolve(reopened=None).is_as(SEEN.evolve(reopened=0))


@pytest.mark.parametrize(
    ("task", "is_ready"), [("free", True), ("released", True), ("blocked", False), ("finished", False)]
)
def test_a_task_is_ready_if_it_is_open_and_waits_for_nothing(task: str, is_ready: bool) -> None:
    graph = Graph(
        id="p",
        not_finished=dict.fromkeys(("free", "released", "blocked"), NOW),
        links={"released": {}, "blocked": {"free": True}},
        finished=("finished",),
    )
    assert graph.is_ready(task) is is_ready
