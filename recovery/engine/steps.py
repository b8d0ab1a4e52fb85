"""What one step of a task's life hands to the next: its records as its decider scheduled it, its way into its queue,
its claim, its end, and what came of its apply.

    enqueue: waiting → queued with a new pass, then the message

Cut off before the push, the decision is queued with a deadline and MESSAGE_LOST finds it.

Finished decisions are read, to be applied, as a majority has them, never as the primary says. What an apply begins
(children are run, a process ends) is not undone by a failover that takes the decision back. Their values are not read,
nor their tasks' arguments. What else they hold is read for so many of them at once as fit into PORTION_BYTES.
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
"""Characters from which on arguments and a value are not kept while their task waits to be applied."""


class Applied(StrEnum):
    """What came of an apply."""

    NOW = "applied"
    BEFORE = "was applied before"
    RESTORED = "was applied before, and children's records were missing"
    NOT_YET = "its parent is not applied yet"
    STALE = "of an earlier epoch, or restarted since, or of no graph"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task and its finished decision; and the task that was claimed on the spot because of it, if one was."""

    task: Task
    decision: Decision
    successor: str | None = None

    @property
    def process_id(self) -> str:
        return self.decision.process_id

    @property
    def failed(self) -> bool:
        """Whether it has no value that others could go on with."""
        return self.decision.outcome is None or self.decision.failed

    def followed(self, successor: str | None) -> Ended:
        """The same, with the task that was claimed because of it, if one was."""
        return self if successor is None else replace(self, successor=successor)

    def light(self) -> Ended:
        """The same, without arguments and value where they are large: dozens of these wait to be applied, which takes
        neither. Whoever wants the value reads it."""
        task, outcome = self.task, self.decision.outcome
        if len(task.args) + len((outcome and outcome.value) or "") <= HEAVY:
            return self
        decision = self.decision.evolve(outcome=outcome.evolve(value=None)) if outcome else self.decision
        return replace(self, task=task.evolve(args=""), decision=decision)


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A claimed decision, and what was learnt from those that ran just before it, in the same place."""

    decision: Decision
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """{task: its outcome}, of the one that ran just before."""

    def knowing(self, outcomes: Mapping[str, Outcome], dependencies: Iterable[str]) -> ClaimedTask:
        """With those of these outcomes that it waited for: {decision: its outcome}."""
        found = {split_record_id(key)[1]: outcomes[key] for key in dependencies if key in outcomes}
        return replace(self, outcomes={**found, **self.outcomes}) if found else self

    def followed_by(self, taken: Decision, ended: Ended) -> ClaimedTask:
        """What is known beside a task that was claimed because this one ended."""
        outcome = ended.decision.outcome
        return ClaimedTask(taken, {ended.decision.task_id: outcome} if outcome is not None and not ended.failed else {})


def records_of_children(
    task: Task, decision: Decision, children: Sequence[Child] | None = None
) -> tuple[list[Task], list[Decision]]:
    """Tasks and Decisions of a finished decision's children, or of these of them. The same at every call."""
    waits = frozenset(decision.outcome.waits if decision.outcome else ())  # as many as there are children, perhaps
    tasks, decisions = [], []
    for child in decision.children if children is None else children:
        inherits = child.id in waits
        made = Task(
            id=record_id(decision.process_id, child.id),
            actor=child.actor,
            args=child.args,
            parent=task.task_id,
            epoch=decision.epoch,
            deps=child.deps,
            # Who waits for the parent waits for the child that it promised.
            dependents=child.dependents | task.dependents if inherits else child.dependents,
            unlocks=child.unlocks | task.unlocks if inherits and len(waits) == 1 else child.unlocks,
            fallible=child.fallible,
            retry=child.retry,
            context=child.context,
        )
        tasks.append(made)
        decisions.append(first_decision(made, child, decision.effects_trace, pinned_to=decision.pinned_to))
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
    """A task's Decision as it is first written: waiting; a start task's is written as queued, under its pass."""
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
_NO_TIME = datetime.fromtimestamp(0, UTC)
"""What is first in line does not tell when it was queued."""


def enqueue(resources: Resources, decision_ids: Sequence[str]) -> list[str]:
    """Enqueue those of these decisions that still wait; those with an eta become delayed. Which were queued. Run twice,
    or by two at once, each is queued once."""
    done: list[str] = []
    for first in range(0, len(decision_ids), BATCH):
        batch = decision_ids[first : first + BATCH]
        queued = resources.store.requeues.enqueue_ready(batch, new_pass())
        push(resources, queued)
        done += [one.id for one in queued]
    return done


def requeue_unrun(resources: Resources, passes: Mapping[str, str], holder: str, error: Exception | None = None) -> None:
    """Requeue {decision: pass} of what this holder claimed, or may have, and does not run: it lives, so nobody else
    would before their deadlines. Raises StoreError, after a message timeout without the database.

    After an `error` that no waiting helps the next attempt would come to the same at once, again and again: it gets no
    message, and is found without one after a while, each time later (MESSAGE_LOST).
    """
    queued = through_outage(
        resources,
        lambda: resources.store.requeues.requeue_unrun(passes, holder, new_pass()),
        resources.settings.message_timeout,
        next(iter(passes)),
    )
    if error is None or isinstance(error, StoreUnavailable):
        push(resources, queued)
    count_requeued("GIVEN_BACK", [one.actor for one in queued])


def put_back(resources: Resources, actor: str, messages: Iterable[tuple[str, str]]) -> None:
    """Make these messages (decision, pass), which were taken and could not be claimed, the next of their queue: of any
    worker that can. Who claims here all the same, and was not answered, makes them stale. Does not raise."""
    push(resources, [Queued(key, actor, pass_key, _NO_TIME, first=True) for key, pass_key in messages])


def push(resources: Resources, queued: Sequence[Queued]) -> None:
    """Push the messages of decisions that were just queued. Does not raise: their deadlines stand."""
    if queued and not resources.broker.push(queued):
        metrics.PUSH_FAILURES.inc(len(queued))


TOGETHER = 1000
"""Decisions that are read at once, at most."""


def ended_portions(store: Store, ids: Sequence[str]) -> Iterator[list[str]]:
    """Of these decisions those that are there, as many as may be held at once."""
    decisions, tasks = store.decisions.effect_sizes(ids), store.tasks.link_sizes(ids)
    weights = {key: decisions[key] + tasks.get(key, 0) for key in ids if key in decisions}
    return portions(weights, PORTION_BYTES, TOGETHER)


def read_each(store: Store, ids: Sequence[str], damaged: Callable[[str, DamagedRecord], object]) -> list[Ended]:
    """Those of these that are finished, in their order; without those that are `damaged`, which is told."""
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
        # A Task that is lost may still stand in its decision.
        if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
    ]
