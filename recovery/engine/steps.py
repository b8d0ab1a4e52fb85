"""The data that one step of a task's life passes to the next, and the steps that put tasks into queues.

    enqueue: waiting → queued with a new pass, then push the message

If a worker dies before the push, the decision is queued with a deadline, and the rule MESSAGE_LOST finds it.

Finished decisions are applied as a majority of MongoDB's members has them, never as the primary alone has them.
Otherwise a failover could take a decision back after its apply has started children or ended the process. The values of
decisions and the arguments of tasks are not read for an apply. Their other fields are read in portions of at most
PORTION_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from recovery import metrics
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import DamagedRecord, StoreUnavailable
from recovery.metrics.registry import count_requeued
from recovery.records import Child, Decision, Outcome, Task, Trace
from recovery.records.ids import new_pass, record_id, split_record_id
from recovery.store import PORTION_BYTES, Queued, Store, portions

HEAVY = 64 * 1024
"""Characters of arguments and value together. If a task has more, neither is kept in memory while the task waits to be
applied."""


class Applied(StrEnum):
    """The result of an apply."""

    NOW = "applied"
    BEFORE = "was applied before"
    RESTORED = "was applied before, and children's records were missing"
    NOT_YET = "its parent is not applied yet"
    STALE = "of an earlier epoch, or restarted since, or of no graph"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task and its finished decision."""

    task: Task
    decision: Decision
    successor: str | None = None
    """The id of the task that was claimed because this task ended, if there is one."""

    @property
    def process_id(self) -> str:
        """The id of the process."""
        return self.decision.process_id

    @property
    def failed(self) -> bool:
        """Whether the task has no value that other tasks could use."""
        return self.decision.outcome is None or self.decision.failed

    def followed(self, successor: str | None) -> Ended:
        """Return the same with the id of the task that was claimed because this task ended, if there is one."""
        return self if successor is None else replace(self, successor=successor)

    def light(self) -> Ended:
        """Return the same without arguments and value if they are larger than HEAVY. Dozens of ended tasks may wait to
        be applied, and an apply needs neither. Code that needs the value reads it again."""
        task, outcome = self.task, self.decision.outcome
        if len(task.args) + len((outcome and outcome.value) or "") <= HEAVY:
            return self
        decision = self.decision.evolve(outcome=outcome.evolve(value=None)) if outcome else self.decision
        return replace(self, task=task.evolve(args=""), decision=decision)


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A claimed decision, and the outcomes of tasks that ran just before it in the same slot."""

    decision: Decision
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """{task id: outcome}, of tasks that ran just before."""

    def knowing(self, outcomes: Mapping[str, Outcome], dependencies: Iterable[str]) -> ClaimedTask:
        """Return the same with the outcomes of the tasks that it waited for. `outcomes` is {decision id: outcome}, and
        `dependencies` are the ids of the decisions that it waited for."""
        known = {split_record_id(key)[1]: outcomes[key] for key in dependencies if key in outcomes}
        return replace(self, outcomes={**known, **self.outcomes}) if known else self

    def followed_by(self, taken: Decision, ended: Ended) -> ClaimedTask:
        """Return a task that was claimed because this task ended, with the outcome of this task."""
        outcome = ended.decision.outcome
        return ClaimedTask(taken, {ended.decision.task_id: outcome} if outcome is not None and not ended.failed else {})


def records_of_children(
    task: Task, decision: Decision, children: Sequence[Child] | None = None
) -> tuple[list[Task], list[Decision]]:
    """Return the tasks and decisions of a finished decision's children. `children` limits them to these children. Every
    call returns the same records."""
    # A set, because there may be as many of them as children.
    waits = frozenset(decision.outcome.waits if decision.outcome else ())
    tasks, decisions = [], []
    for child in decision.children if children is None else children:
        is_promised = child.id in waits
        child_task = Task(
            id=record_id(decision.process_id, child.id),
            actor=child.actor,
            args=child.args,
            parent=task.task_id,
            epoch=decision.epoch,
            deps=child.deps,
            # Tasks that wait for the parent wait for the child that the parent promised.
            dependents=child.dependents | task.dependents if is_promised else child.dependents,
            unlocks=child.unlocks | task.unlocks if is_promised and len(waits) == 1 else child.unlocks,
            fallible=child.fallible,
            retry=child.retry,
            context=child.context,
        )
        tasks.append(child_task)
        decisions.append(first_decision(child_task, child, decision.effects_trace, pinned_to=decision.pinned_to))
    return tasks, decisions


def first_decision(
    task: Task,
    child: Child | None = None,
    trace: Trace | None = None,
    *,
    pass_key: str | None = None,
    queued_at: datetime | None = None,
    pinned_to: str | None = None,
) -> Decision:
    """Return a task's decision as it is first written: waiting, or, for a start task, queued under its pass."""
    return Decision(
        id=task.id,
        actor=task.actor,
        epoch=task.epoch,
        fallible=task.fallible,
        pass_key=pass_key,
        queued_at=queued_at,
        pinned_to=pinned_to,
        call=task.call(),
        eta=child.eta if child is not None else None,
        delay=child.delay if child is not None else None,
        trace=trace,
    )


BATCH = 1000
"""Maximum number of decisions that are enqueued at once."""
_NO_TIME = datetime.fromtimestamp(0, UTC)
"""The time of messages that go to the front of a queue: such messages do not carry one."""


def enqueue(resources: Resources, decision_ids: Sequence[str]) -> list[str]:
    """Enqueue the decisions that still wait, and return the ids of those that were queued.

    Decisions with an eta or a delay become delayed instead. If this runs twice, or in two places at once, each decision
    is queued once.
    """
    enqueued: list[str] = []
    for first in range(0, len(decision_ids), BATCH):
        batch = decision_ids[first : first + BATCH]
        queued = resources.store.requeues.enqueue_ready(batch, new_pass())
        push(resources, queued)
        enqueued += [decision.id for decision in queued]
    return enqueued


def requeue_unrun(resources: Resources, passes: Mapping[str, str], holder: str, error: Exception | None = None) -> None:
    """Requeue tasks that this holder claimed, or may have claimed, and will not run.

    Nobody else would requeue the tasks before their deadlines, because their holder is alive.

    Args:
        resources: The connections.
        passes: {decision id: pass}, at least one.
        holder: The slot that claimed the tasks.
        error: Why the tasks could not run. After an error that does not pass by waiting, the next attempt would fail at
            once, again and again. Then no message is sent. MESSAGE_LOST finds the decisions after a while, each time
            later.

    Raises:
        StoreError: MongoDB refused the update, or was unavailable for a message timeout.
    """
    queued = through_outage(
        resources,
        lambda: resources.store.requeues.requeue_unrun(passes, holder, new_pass()),
        resources.settings.message_timeout,
        next(iter(passes)),
    )
    if error is None or isinstance(error, StoreUnavailable):
        push(resources, queued)
    count_requeued("GIVEN_BACK", [decision.actor for decision in queued])


def put_back(resources: Resources, actor: str, messages: Iterable[tuple[str, str]]) -> None:
    """Put messages back to the front of their queue, so that a worker takes them next. Does not raise.

    `messages` are pairs (decision id, pass) that were received and whose decisions could not be claimed. If a claim
    took place and only its answer was lost, the messages are stale.
    """
    push(resources, [Queued(key, actor, pass_key, _NO_TIME, first=True) for key, pass_key in messages])


def push(resources: Resources, queued: Sequence[Queued]) -> None:
    """Push the messages of decisions that were just queued. Does not raise: if the push fails, the deadlines of the
    decisions remain."""
    if queued and not resources.broker.push(queued):
        metrics.PUSH_FAILURES.inc(len(queued))


TOGETHER = 1000
"""Maximum number of decisions that are read at once."""


def ended_portions(store: Store, ids: Sequence[str]) -> Iterator[list[str]]:
    """Return the ids of the decisions that exist, in portions that can be held in memory."""
    decisions, tasks = store.decisions.effect_sizes(ids), store.tasks.link_sizes(ids)
    weights = {key: decisions[key] + tasks.get(key, 0) for key in ids if key in decisions}
    return portions(weights, PORTION_BYTES, TOGETHER)


def read_each(store: Store, ids: Sequence[str], damaged: Callable[[str, DamagedRecord], object]) -> list[Ended]:
    """Return the finished tasks among these ids, in the same order. A damaged record is left out, and passed to
    `damaged`."""
    try:
        return _read(store, ids)
    except DamagedRecord as damage:
        if len(ids) > 1:
            return [ended for key in ids for ended in read_each(store, [key], damaged)]
        damaged(ids[0], damage)
        return []


def _read(store: Store, ids: Sequence[str]) -> list[Ended]:
    tasks, decisions = store.tasks.links(ids), store.decisions.effects(ids)
    return [
        Ended(task, decision)
        for key in ids
        # If the Task record is lost, its decision may still contain the task.
        if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
    ]
