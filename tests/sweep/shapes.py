"""Processes in every condition the rules know, as records: healthy ones, and one broken in each way.

All have one form: `start` schedules eight parts and `merge`, which waits for them; `merge` schedules two more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from recovery.records import (
    Child,
    Decision,
    DecisionState,
    ErrorInfo,
    Graph,
    Interruption,
    Order,
    OrderKind,
    Outcome,
    Process,
    ProcessState,
    QueueStatistics,
    Task,
    to_document,
)
from recovery.records.ids import child_task_id, record_id
from recovery.rules import Rule, Snapshot
from recovery.store import schema

PARTS = 8
SIZE = PARTS + 4
VALUE = '{"rows":1834,"checked":true,"from":"2026-03-01","path":"s3://orders/2026/03/part"}'
ERROR = ErrorInfo(kind="ValueError", message="no rows", fingerprint="f")
OLD = timedelta(minutes=10)
SOON = timedelta(minutes=10)
QUEUE_THAT_MOVED = "part"
"""Of this queue a later message than any was taken; of the queue `audit` none was."""


@dataclass(frozen=True)
class Records:
    """The records of one process."""

    process: Process
    graph: Graph | None
    tasks: dict[str, Task]
    decisions: dict[str, Decision]
    listed: dict[str, int] = field(default_factory=dict)
    """{task that is listed as interrupted: its restarts}."""
    order: Order | None = None
    """By which it is marked, if it is."""

    def change(self, task: str, **changes: Any) -> Records:
        """With one decision changed."""
        return replace(self, decisions={**self.decisions, task: self.decisions[task].evolve(**changes)})

    def to_documents(self) -> dict[str, list[dict[str, Any]]]:
        """{collection: documents}."""
        return {
            schema.PROCESSES: [to_document(self.process)],
            schema.GRAPHS: [to_document(self.graph)] if self.graph else [],
            schema.TASKS: [to_document(task) for task in self.tasks.values()],
            schema.DECISIONS: [to_document(decision) for decision in self.decisions.values()],
            schema.INTERRUPTIONS: [to_document(one) for one in self._interruptions()],
            schema.ORDERS: [to_document(self.order)] if self.order else [],
        }

    def _interruptions(self) -> Iterator[Interruption]:
        kind, process = ERROR.kind, self.process
        for task, restarts in self.listed.items():
            key = record_id(process.id, task)
            yield Interruption(
                id=key, type=process.type, actor="part", kind=kind, message="", fingerprint="f", restarts=restarts
            )

    def to_snapshot(self) -> Snapshot:
        """As rules look at them."""
        listed = self.listed if self.process.state is ProcessState.BROKEN else None
        return Snapshot(self.process.id, self.process, self.graph, self.decisions, frozenset(self.tasks), listed=listed)


def part(place: int) -> str:
    return child_task_id("start", 0, place)


MERGE = part(PARTS)
LAST = (child_task_id(MERGE, 0, 0), child_task_id(MERGE, 0, 1))


def finished(process_id: str, now: datetime) -> Records:
    """Finished, all at rest."""
    began, ended = now - 2 * OLD, now - OLD
    parts = tuple(part(place) for place in range(PARTS))
    of_start = (
        *(Child(id=p, actor="part", args='[["2026-03"],{}]', dependents={MERGE: "merge"}) for p in parts),
        Child(id=MERGE, actor="merge", args=f'[[{{"$promise":"{parts[0]}"}}],{{}}]', deps=parts),
    )
    of_merge = tuple(Child(id=t, actor="report", args='[["weekly"],{}]') for t in LAST)
    made: list[tuple[str, str, str | None, tuple[Child, ...]]] = [
        ("start", "orders", None, of_start),
        *((c.id, c.actor, "start", of_merge if c.id == MERGE else ()) for c in of_start),
        *((c.id, c.actor, MERGE, ()) for c in of_merge),
    ]
    tasks, decisions = {}, {}
    for task_id, actor, parent, children in made:
        key = record_id(process_id, task_id)
        deps = parts if task_id == MERGE else ()
        dependents = {MERGE: "merge"} if task_id in parts else {}
        tasks[task_id] = Task(
            id=key, actor=actor, args='[["2026-03"],{}]', parent=parent, deps=deps, dependents=dependents
        )
        decisions[task_id] = Decision(
            id=key,
            actor=actor,
            state=DecisionState.FINISHED,
            pass_key="0" * 32,
            attempts=1,
            call=tasks[task_id].call(),
            queued_at=began,
            claimed_at=began,
            outcome=Outcome(pass_key="0" * 32, finished_at=ended, value=VALUE),
            children=children,
        )
    return Records(
        process=Process(
            id=process_id,
            type="orders",
            args='[["2026-03"],{}]',
            state=ProcessState.FINISHED,
            started_at=began,
            ended_at=ended,
            result=VALUE,
        ),
        graph=Graph(id=process_id, finished=tuple(tasks), version=SIZE, touched_at=ended),
        tasks=tasks,
        decisions=decisions,
    )


def running(process_id: str, now: datetime) -> Records:
    """Healthy: the parts are finished, or queued, at work and delayed with deadlines to come; `merge` waits."""
    whole = finished(process_id, now)
    tasks = {t: task for t, task in whole.tasks.items() if t not in LAST}
    live: dict[str, dict[str, Any]] = {
        part(0): {"state": DecisionState.QUEUED, "queued_at": now, "recovery_time": now + SOON},
        part(1): {"state": DecisionState.WORKING, "worker": "w", "recovery_time": now + SOON},
        part(2): {"state": DecisionState.DELAYED, "eta": now + SOON, "recovery_time": now + SOON},
        part(3): {"recovery_time": now + SOON},
        MERGE: {"state": DecisionState.WAITING, "queued_at": None},
    }
    decisions = {t: d for t, d in whole.decisions.items() if t in tasks}
    for task_id, changes in live.items():
        outcome = decisions[task_id].outcome if task_id == part(3) else None
        children = decisions[task_id].children if task_id == part(3) else ()
        decisions[task_id] = decisions[task_id].evolve(**{"outcome": outcome, "children": children, **changes})
    graph = Graph(
        id=process_id,
        not_finished=dict.fromkeys((*[part(0), part(1), part(2)], MERGE), now - OLD),
        links={MERGE: {part(0): True, part(1): True, part(2): True}},
        finished=tuple(t for t in tasks if t not in (part(0), part(1), part(2), MERGE)),
        version=PARTS,
        touched_at=now - OLD,
        recovery_time=now + SOON,
    )
    process = whole.process.evolve(
        state=ProcessState.RUNNING, ended_at=None, result=None, recovery_time=now + SOON, started_at=now - OLD
    )
    return Records(process, graph, tasks, decisions)


def delayed_without_end(process_id: str, now: datetime) -> Records:
    """Healthy, as far as it can be: by a number that another program wrote, and that no date can be told from."""
    records = running(process_id, now).change(part(2), delay=1e15)
    return replace(records, process=records.process.evolve(idle_timeout=1e308))


def epoch_of_what_waits(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(MERGE, epoch=1)


def epoch_of_what_is_done(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change("start", epoch=1)


def work_timeout(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(part(1), recovery_time=now - OLD)


def due(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(part(2), eta=now - OLD, recovery_time=now - OLD)


def deadline_missing(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(part(1), recovery_time=None)


def message_lost(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(part(0), queued_at=now - OLD)


def no_actors(process_id: str, now: datetime) -> Records:
    return running(process_id, now).change(part(0), actor="audit", queued_at=now - OLD, recovery_time=now - OLD)


def not_applied(process_id: str, now: datetime) -> Records:
    done = finished(process_id, now).decisions[part(1)]
    records = running(process_id, now)
    return replace(records, decisions={**records.decisions, part(1): done})


def not_applied_but_ended(process_id: str, now: datetime) -> Records:
    """Finished, and one of its decisions does not say that it was applied."""
    return finished(process_id, now).change(part(1), recovery_time=now - OLD)


def without(records: Records, task: str, *, tasks: bool = False, decisions: bool = False) -> Records:
    """Without a task's Task, its Decision, or both."""
    left = {t: one for t, one in records.tasks.items() if not (tasks and t == task)}
    decided = {t: one for t, one in records.decisions.items() if not (decisions and t == task)}
    return replace(records, tasks=left, decisions=decided)


def children_missing(process_id: str, now: datetime) -> Records:
    return without(running(process_id, now), MERGE, tasks=True, decisions=True)


def task_missing(process_id: str, now: datetime) -> Records:
    return without(running(process_id, now), MERGE, tasks=True)


def decision_missing(process_id: str, now: datetime) -> Records:
    return without(running(process_id, now), MERGE, decisions=True)


def decision_lost_for_good(process_id: str, now: datetime) -> Records:
    """That of the start: what it scheduled stood nowhere else."""
    return without(running(process_id, now), "start", decisions=True)


def graph_missing(process_id: str, now: datetime) -> Records:
    return replace(running(process_id, now), graph=None)


def finished_undecided(process_id: str, now: datetime) -> Records:
    undecided: dict[str, Any] = {"state": DecisionState.QUEUED, "outcome": None, "queued_at": now}
    return running(process_id, now).change(part(4), **undecided, recovery_time=now + SOON)


def with_graph(records: Records, **changes: Any) -> Records:
    assert records.graph is not None
    return replace(records, graph=records.graph.evolve(**changes))


def dead_link(process_id: str, now: datetime) -> Records:
    links = {MERGE: {part(0): True, part(5): True, "nobody": True}}
    return with_graph(running(process_id, now), links=links)


def cycle(process_id: str, now: datetime) -> Records:
    links = {MERGE: {part(2): True}, part(2): {MERGE: True}}
    return with_graph(running(process_id, now), links=links)


def graph_without_deadline(process_id: str, now: datetime) -> Records:
    return with_graph(running(process_id, now), recovery_time=None)


def finished_too_early(process_id: str, now: datetime) -> Records:
    records = finished(process_id, now)
    done = tuple(t for t in records.tasks if t != part(1))
    return with_graph(records, not_finished={part(1): now - OLD}, finished=done, recovery_time=now + SOON)


def finished_tasks_lost(process_id: str, now: datetime) -> Records:
    """The process has finished; its graph lacks some of what it did."""
    records = finished(process_id, now)
    return with_graph(records, finished=tuple(t for t in records.tasks if t != part(1)))


def ready_not_queued(process_id: str, now: datetime) -> Records:
    records = running(process_id, now)
    assert records.graph is not None
    return replace(records, graph=records.graph.evolve(links={}))


def start_not_registered(process_id: str, now: datetime) -> Records:
    return replace(running(process_id, now), graph=None, tasks={}, decisions={})


def finish_not_recorded(process_id: str, now: datetime) -> Records:
    """`merge` and what it scheduled are done; the process still runs."""
    running_process = running(process_id, now).process
    return replace(finished(process_id, now), process=running_process)


def broken(process_id: str, now: datetime) -> Records:
    """Healthy: a part failed, and what does not wait for it goes on."""
    outcome = Outcome(pass_key="0" * 32, finished_at=now - OLD, error=ERROR)
    records = running(process_id, now).change(
        part(1), state=DecisionState.FINISHED, outcome=outcome, worker=None, restarts=1, recovery_time=None
    )
    error = ERROR.evolve(task=part(1), actor="part")
    process = records.process.evolve(state=ProcessState.BROKEN, ended_at=now - OLD, error=error, recovery_time=None)
    records = replace(records, process=process, listed={part(1): 1})
    return with_graph(records, failed={part(1): True}, restarted={part(1): 1})


def broken_as_a_whole(process_id: str, now: datetime) -> Records:
    """Healthy: its time was over."""
    records = running(process_id, now)
    process = records.process.evolve(
        state=ProcessState.BROKEN, ended_at=now - OLD, error=ERROR, recovery_time=None, reopened=2
    )
    return replace(records, process=process, listed={"start": 2})


def not_listed(process_id: str, now: datetime) -> Records:
    return replace(broken(process_id, now), listed={})


def listed_for_an_earlier_life(process_id: str, now: datetime) -> Records:
    return replace(broken(process_id, now), listed={part(1): 0})


def not_listed_as_a_whole(process_id: str, now: datetime) -> Records:
    return replace(broken_as_a_whole(process_id, now), listed={})


def marker_not_written(process_id: str, now: datetime) -> Records:
    records, order = broken(process_id, now), Order(id=f"{process_id}/key", kind=OrderKind.MARK, epoch=0, at=now)
    process = records.process.evolve(marker_due=True, order="key", recovery_time=now)
    return replace(records, process=process, order=order)


Shape = Callable[[str, datetime], Records]

HEALTHY: tuple[Shape, ...] = (finished, running, delayed_without_end, broken, broken_as_a_whole)

BROKEN: dict[Shape, Rule] = {
    work_timeout: Rule.WORK_TIMEOUT,
    due: Rule.DUE,
    deadline_missing: Rule.DEADLINE_MISSING,
    message_lost: Rule.MESSAGE_LOST,
    no_actors: Rule.NO_ACTORS,
    not_applied: Rule.DECISION_NOT_APPLIED,
    not_applied_but_ended: Rule.DECISION_NOT_APPLIED,
    children_missing: Rule.CHILDREN_MISSING,
    task_missing: Rule.TASK_MISSING,
    decision_missing: Rule.DECISION_MISSING,
    decision_lost_for_good: Rule.DECISION_MISSING,
    graph_missing: Rule.GRAPH_MISSING,
    finished_undecided: Rule.FINISHED_UNDECIDED,
    dead_link: Rule.DEAD_LINK,
    cycle: Rule.CYCLE,
    graph_without_deadline: Rule.DEADLINE_MISSING,
    finished_too_early: Rule.FINISHED_TOO_EARLY,
    finished_tasks_lost: Rule.GRAPH_CONTRADICTED,
    ready_not_queued: Rule.READY_NOT_QUEUED,
    start_not_registered: Rule.START_NOT_REGISTERED,
    finish_not_recorded: Rule.FINISH_NOT_RECORDED,
    not_listed: Rule.INTERRUPTION_MISSING,
    listed_for_an_earlier_life: Rule.INTERRUPTION_MISSING,
    not_listed_as_a_whole: Rule.INTERRUPTION_MISSING,
    marker_not_written: Rule.MARKER_MISSING,
    epoch_of_what_waits: Rule.EPOCH_WRONG,
    epoch_of_what_is_done: Rule.EPOCH_WRONG,
}
ONLY_TOLD = (no_actors, finished_too_early)
"""Conditions about which nothing is to be done."""


def queue_statistics(now: datetime) -> QueueStatistics:
    """What workers told of `QUEUE_THAT_MOVED`: a message as young as `now` less a minute was taken."""
    return QueueStatistics(id=QUEUE_THAT_MOVED, polled_at=now, taken_queued_at=now - timedelta(minutes=1))
