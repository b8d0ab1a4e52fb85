"""What was found on single tasks is judged again as the Decision scanner does it: of their decisions alone are read.

To read a process whole takes ten times as long, and what a lost message or a time-out needs stands in its decision.
What it was found on is all that is looked at: whatever else is wrong, or was not repaired so, is for a look at the
whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.engine import Resources
from recovery.records import DecisionState, OperationResult, Process, ProcessState
from recovery.records.ids import SEPARATOR
from recovery.repair import Diagnosis, look_around
from recovery.rules import OF_SINGLE_TASKS, Repair, judge_decision

HANDED_OVER = {Repair.REQUEUE, Repair.REQUEUE_MESSAGE, Repair.ENQUEUE_DUE}
"""Repairs after which a worker has the task: nothing more is to be seen of them."""


def of_single_tasks(result: OperationResult, process: Process | None) -> bool:
    """Whether a result has nothing but findings on single tasks, all of which it tells, of a process that goes on."""
    found = result.findings
    return (
        process is not None
        and process.state is ProcessState.RUNNING
        and 0 < sum(result.counts.values()) == len(found)
        and all(one.rule in OF_SINGLE_TASKS and SEPARATOR in one.record for one in found)
    )


def diagnose_tasks(resources: Resources, results: Sequence[OperationResult]) -> Diagnosis:
    """What is wrong now with the tasks that these results name."""
    read = resources.store.ranges.decisions([one.record for result in results for one in result.findings])
    queues = {one.actor for one in read.records if one.state is DecisionState.QUEUED}
    around = look_around(resources, queues=queues)
    return Diagnosis([found for one in read.records if (found := judge_decision(one, around))], around)


def is_settled(result: OperationResult, diagnosed: Mapping[str, Sequence[Repair]], dealt_with: int) -> bool:
    """Whether all that a result names was found again, and handed over to a worker, now or by its pace later."""
    again = diagnosed.get(result.process, ())
    return len(again) == dealt_with == len(result.findings) and all(one in HANDED_OVER for one in again)
