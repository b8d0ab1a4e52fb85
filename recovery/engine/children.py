"""The records of the tasks that a decider scheduled, as they are first written."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.records import Child, Decision, Task
from recovery.records.ids import record_id


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
        )
        tasks.append(made)
        decisions.append(first_decision(made, child))
    return tasks, decisions


def first_decision(task: Task, child: Child | None = None) -> Decision:
    """A task's Decision as it is first written: waiting."""
    return Decision(
        id=task.id,
        actor=task.actor,
        epoch=task.epoch,
        fallible=task.fallible,
        call=task.call(),
        eta=child.eta if child is not None else None,
        delay=child.delay if child is not None else None,
    )
