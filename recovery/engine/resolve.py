"""Values of promises: what a task's arguments, or a process's result, come to.

A task's value may itself promise the values of children that the task scheduled; those are followed until
nothing is promised any more. Each layer is one query, for all promises in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recovery.errors import RecoveryError
from recovery.records import Failure, Outcome
from recovery.records.ids import record_id, split_record_id
from recovery.records.values import decode
from recovery.store import Store


class NotDecided(RecoveryError):
    """A value is wanted of a task that is not finished."""


def resolve(
    store: Store, process_id: str, task_ids: Sequence[str], known: Mapping[str, Outcome] | None = None
) -> dict[str, Any]:
    """{task id: value} of these finished tasks, everything they promise included. `known` need not be read.

    The value of a fallible task that failed is its Failure. Raises NotDecided if one is not finished, or ended with an
    error that no one can go on with: then nobody should have asked, but for a decision that was lost since.
    """
    outcomes: dict[str, Outcome] = {}
    wanted = list(dict.fromkeys(task_ids))
    while wanted:
        found = {task: known[task] for task in wanted if known and task in known}
        if missing := [record_id(process_id, task) for task in wanted if task not in found]:
            read = store.decisions.outcomes(missing)
            found |= {split_record_id(key)[1]: outcome for key, outcome in read.items()}
        layer: dict[str, None] = {}
        for task in wanted:
            outcome = found.get(task)
            if outcome is None or (outcome.value is None and outcome.error is None):
                raise NotDecided(f"process {process_id}: task {task} has no value yet, but is waited for")
            outcomes[task] = outcome
            layer |= dict.fromkeys(outcome.waits)
        wanted = [task for task in layer if task not in outcomes]
    values: dict[str, Any] = {}
    # Only its own decider can promise a child, so a promised task always stands after who promises it.
    for task, outcome in reversed(outcomes.items()):
        if outcome.error is not None:
            error = outcome.error
            values[task] = Failure(error.kind, error.message, error.actor or "", task)
        else:
            values[task] = decode(outcome.value or "null", values.__getitem__)
    return values
