"""Records in the conditions that scanners look for, and scanners of a world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from recovery.engine import Resources
from recovery.records import Decision, DecisionState, Graph, Process, Task
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, Scanner, WorkerScanner
from recovery.scan.scanner import Page
from tests.store.writing import put
from tests.world import World

DAY = timedelta(days=1)


def process_of(number: int) -> str:
    """The id of the process of the decision that `overdue` makes as its nth, from 0."""
    return f"{number:032x}"


def start_of(number: int) -> str:
    """That decision's id."""
    return f"{process_of(number)}/start"


def silent_workers(resources: Resources) -> Callable[[], dict[str, Any]]:
    """As told by a worker that has watched for long enough: MongoDB's clock alone decides who is silent."""
    workers = resources.store.workers

    def find() -> dict[str, Any]:
        silent = [one.id for one in workers.silent(100)]
        # Another scan may have removed one of them since.
        return {
            key: deadline
            for key, deadline in resources.store.heartbeat_view.look("").deadlines.items()
            if key in silent
        }

    return find


SCANNERS: dict[str, Callable[[World], Scanner[Any]]] = {
    "workers": lambda w: WorkerScanner(w.app.resources, w.app.outbox, silent_workers(w.app.resources)),
    "decisions": lambda w: DecisionScanner(w.app.resources, w.app.outbox),
    "graphs": lambda w: GraphScanner(w.app.resources, w.app.outbox),
    "processes": lambda w: ProcessScanner(w.app.resources, w.app.outbox),
}


def scanner(world: World, name: str) -> Scanner[Any]:
    world.tell()
    return SCANNERS[name](world)


def overdue(world: World, state: DecisionState, count: int = 1, *, first: int = 0, **changes: Any) -> list[Decision]:
    """Decisions of the actor `add`, each with its process, whose deadlines are past; numbered from `first` on."""
    past = world.store.now() - DAY
    made = [
        Decision(
            id=start_of(n), actor="add", state=state, pass_key="old", queued_at=past, recovery_time=past,
            worker="w#1" if state is DecisionState.WORKING else None,
        ).evolve(**changes)
        for n in range(first, first + count)
    ]  # fmt: skip
    put(world.store, *made)
    register(world, made)
    return made


def register(world: World, decisions: Sequence[Decision]) -> None:
    """Give decisions of start tasks the rest of their processes' records."""
    now, records = world.store.now(), list[Any]()
    for decision in decisions:
        process_id = decision.process_id
        records += [
            Task(id=decision.id, actor=decision.actor, args="[[],{}]"),
            Process(id=process_id, type="add", args="[[],{}]", started_at=now, recovery_time=now + DAY),
            Graph(
                id=process_id, not_finished={"start": now}, touched_at=now, recovery_time=now + DAY, idle_timeout=60
            ),
        ]  # fmt: skip
    put(world.store, *records)


def after_find(scanner: Scanner[Any], act: Callable[[], object]) -> None:
    """Make `scanner` do this once, between its find and what it does with what it found."""
    real = scanner.find
    todo = [act]

    def find() -> Page[Any]:
        page = real()
        if todo:
            todo.pop()()
        return page

    scanner.find = find  # type: ignore[method-assign]
