"""Values of promises: what a task's arguments, or a process's result, come to.

A task's value may itself promise the values of children that the task scheduled; those are followed until nothing is
promised any more. Each layer is one query, for all promises in it, which brings small values and of the others the
size: what comes to more than may be held is known before it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recovery.errors import RecoveryError, TooLarge
from recovery.records import Failure, Outcome
from recovery.records.ids import record_id, split_record_id
from recovery.records.values import MAX_BYTES, decode, dump, promise_bytes
from recovery.store import Held, Store

MAX_CALL_BYTES = 4 * MAX_BYTES
"""What a task is called with, everything that its arguments promise included, as JSON. Each part is in a record of its
own; Python takes some four times as much, in each slot of a worker."""


class NotDecided(RecoveryError):
    """A value is wanted of a task that is not finished."""


def resolve(
    store: Store, process_id: str, task_ids: Sequence[str], known: Mapping[str, Outcome] | None = None
) -> dict[str, Any]:
    """{task id: value} of these finished tasks, everything they promise included. `known` need not be read.

    The value of a fallible task that failed is its Failure. Raises NotDecided if one is not finished, or ended with an
    error that no one can go on with: then nobody should have asked, but for a decision that was lost since. Raises
    TooLarge where they come to over MAX_CALL_BYTES.
    """
    return values_of(gather(store, process_id, task_ids, MAX_CALL_BYTES, known))


def gather(
    store: Store, process_id: str, task_ids: Sequence[str], most: int, known: Mapping[str, Outcome] | None = None
) -> dict[str, Outcome]:
    """{task id: outcome} of these and of all that they promise; who promises stands before who is promised.

    Raises TooLarge, before anything large is read, if they come to over `most` bytes with each promise kept once.
    """
    held: dict[str, Held] = {}
    wanted, together = list(dict.fromkeys(task_ids)), 0
    while wanted:
        found = {task: _whole(known[task]) for task in wanted if known and task in known}
        if missing := [record_id(process_id, task) for task in wanted if task not in found]:
            found |= {split_record_id(key)[1]: one for key, one in store.decisions.outcomes(missing).items()}
        layer: dict[str, None] = {}
        for task in wanted:
            one = found.get(task)
            if one is None or (one.outcome.value is None and not one.left_out and one.outcome.error is None):
                raise NotDecided(f"process {process_id}: task {task} has no value yet, but is waited for")
            held[task] = one
            together += one.size - sum(map(promise_bytes, one.outcome.waits))
            layer |= dict.fromkeys(one.outcome.waits)
        if together > most:
            raise TooLarge(f"{together:,} bytes as JSON with all that is promised, over the limit of {most:,}")
        wanted = [task for task in layer if task not in held]
    return _with_values(store, process_id, held)


def _whole(outcome: Outcome) -> Held:
    return Held(outcome, len((outcome.value or "").encode()), left_out=False)


def _with_values(store: Store, process_id: str, held: Mapping[str, Held]) -> dict[str, Outcome]:
    outcomes = {task: one.outcome for task, one in held.items()}
    left = {record_id(process_id, task): one.outcome.pass_key for task, one in held.items() if one.left_out}
    read = dict(store.decisions.values(left))
    for key in left:
        task = split_record_id(key)[1]
        if read.get(key) is None:  # gone, or another by now, since its size was read
            raise NotDecided(f"process {process_id}: task {task} has no value any more, but is waited for")
        outcomes[task] = replace(outcomes[task], value=read[key])
    return outcomes


def values_of(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """The values of what `gather` found."""
    values: dict[str, Any] = {}
    for task, outcome in _promised_first(outcomes):
        failure = _failure(task, outcome)
        values[task] = decode(outcome.value or "null", values.__getitem__) if failure is None else failure
    return values


_PROMISE = re.compile(r'\{"\$promise":"([^"]*)"\}')
"""A promise in a value's text. In a string that holds such a text its quotes are escaped."""


def text_size(outcomes: dict[str, Outcome], task_id: str) -> int:
    """The bytes of a value as JSON, every promise in it kept. One that is promised a thousand times is a thousand times
    in it: far more, perhaps, than all that was read."""
    sizes: dict[str, int] = {}
    for task, outcome in _promised_first(outcomes):
        failure = _failure(task, outcome)
        text = dump(failure) if failure is not None else outcome.value or "null"
        promised = _PROMISE.findall(text) if outcome.waits else ()
        sizes[task] = len(text.encode()) + sum(sizes[other] - promise_bytes(other) for other in promised)
    return sizes[task_id]


def _promised_first(outcomes: dict[str, Outcome]) -> Iterator[tuple[str, Outcome]]:
    # Only its own decider can promise a child, so a promised task always stands after who promises it.
    return reversed(outcomes.items())


def _failure(task: str, outcome: Outcome) -> Failure | None:
    error = outcome.error
    return None if error is None else Failure(error.kind, error.message, error.actor or "", task)
