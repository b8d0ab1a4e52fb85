"""Put values in the place of promises, in a task's arguments or in a process's result.

The value of a task may itself hold promises of its children. They are followed until no promise remains. Each layer
takes one query for all of its promises. The query returns small values, and the sizes of large ones. So a call that
would be too large is refused before the large values are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from recovery.errors import DamagedRecord, RecoveryError, TooLarge
from recovery.records import Failure, Outcome, Task
from recovery.records.ids import record_id, split_record_id
from recovery.records.values import MAX_BYTES, decode, dump, promise_bytes
from recovery.store import Held, Store

MAX_CALL_BYTES = 4 * MAX_BYTES
"""Maximum size of a task's arguments with all promised values, in bytes of JSON. Each part is in a record of its own.
Python takes about four times as much memory, in each slot of a worker."""


class NotReady(RecoveryError):
    """A task needs a value or a record that does not exist: another task is not finished, or a record is missing."""


class CallRefused(RecoveryError):
    """The function in this worker cannot be called with a task's arguments. Its code may be older or newer than the
    caller's."""


def arguments(store: Store, task: Task, known: Mapping[str, Outcome] | None = None) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments of a task, with all promises replaced by values.

    The value of a fallible task that failed is its `Failure`.

    Args:
        store: The store.
        task: The task.
        known: {task id: outcome}, outcomes that need not be read.

    Raises:
        NotReady: A promised task is not finished, or failed for good. Such a task is not queued, unless a decision was
            lost afterwards.
        TooLarge: The arguments are larger than MAX_CALL_BYTES. Each value counts as often as it is promised. It is in
            memory once, but it is written each time if it is passed on or returned.
        DamagedRecord: The task, or the record of a promised value, cannot be read.
    """
    values: dict[str, Any] = {}
    if task.deps:
        scheduled_by = record_id(task.process_id, task.parent) if task.parent else None
        outcomes = gather(store, task.process_id, dict.fromkeys(task.deps, scheduled_by), MAX_CALL_BYTES, known)
        size = text_size(task.args, outcomes)
        if size > MAX_CALL_BYTES:
            raise _over(size, MAX_CALL_BYTES)
        values = values_of(task.process_id, outcomes)
    call = _decoded(f"Task {task.id}: its args", task.id, task.args, values)
    if not (isinstance(call, list) and list(map(type, call)) == [list, dict]):
        raise DamagedRecord(task.id, f"Task {task.id}: its args are not [positional, named] arguments")
    positional, named = call
    return positional, named


def _over(size: int, limit: int) -> TooLarge:
    size_text = f"{size:,}" if size < 10**15 else "over 10^15"
    return TooLarge(f"{size_text} bytes as JSON with all that is promised, over the limit of {limit:,}")


def gather(
    store: Store,
    process_id: str,
    promised: Mapping[str, str | None],
    most: int,
    known: Mapping[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """Return {task id: outcome} of promised tasks, and of all tasks that these promise in turn.

    A task comes before the tasks that it promises.

    Args:
        store: The store.
        process_id: The process of the tasks.
        promised: {task id: id of the decision that scheduled it, or None}.
        most: Maximum bytes of all values, each value counted once.
        known: {task id: outcome}, outcomes that need not be read.

    Raises:
        TooLarge: The values are larger than `most`. Raised before anything large is read.
        NotReady: A task has no value.
        DamagedRecord: A decision promises a task that it did not schedule, or has neither a value nor an error.
    """
    held: dict[str, Held] = {}
    wanted, total_bytes = dict(promised), 0
    while wanted:
        outcomes = {task: _whole(known[task]) for task in wanted if known and task in known}
        if missing := [record_id(process_id, task) for task in wanted if task not in outcomes]:
            outcomes |= {
                split_record_id(key)[1]: held_outcome for key, held_outcome in store.decisions.outcomes(missing).items()
            }
        layer: dict[str, str | None] = {}
        for task, scheduled_by in wanted.items():
            held_outcome = outcomes.get(task)
            if held_outcome is None:
                raise _not_there(store, process_id, task, scheduled_by)
            held[task] = held_outcome
            total_bytes += held_outcome.size - sum(map(promise_bytes, held_outcome.outcome.waits))
            layer |= dict.fromkeys(held_outcome.outcome.waits, record_id(process_id, task))
        if total_bytes > most:
            raise _over(total_bytes, most)
        wanted = {task: scheduled_by for task, scheduled_by in layer.items() if task not in held}
    return _with_values(store, process_id, held)


def _not_there(store: Store, process_id: str, task: str, scheduled_by: str | None) -> RecoveryError:
    """Return the error for a promised task that has no value. It is DamagedRecord if no such task was ever scheduled.
    Otherwise it is NotReady: the task is lost, and will be done again."""
    if scheduled_by is not None and store.decisions.schedules(scheduled_by, task) is False:
        message = f"Decision {scheduled_by}: a task waits for the value of task {task!r}, which is none of its children"
        return DamagedRecord(scheduled_by, message)
    return NotReady(f"process {process_id}: task {task} has no value yet, but another task waits for it")


def _whole(outcome: Outcome) -> Held:
    return Held(outcome, len((outcome.value or "").encode()), left_out=False)


def _with_values(store: Store, process_id: str, held: Mapping[str, Held]) -> dict[str, Outcome]:
    outcomes = {task: held_outcome.outcome for task, held_outcome in held.items()}
    left_out = {
        record_id(process_id, task): held_outcome.outcome.pass_key
        for task, held_outcome in held.items()
        if held_outcome.left_out
    }
    stored_values = dict(store.decisions.values(left_out))
    for key in left_out:
        task = split_record_id(key)[1]
        if key not in stored_values:  # removed or replaced after its size was read
            raise NotReady(f"process {process_id}: task {task} has no value any more, but another task waits for it")
        outcomes[task] = replace(outcomes[task], value=stored_values[key])
    for task, outcome in outcomes.items():
        if outcome.error is None and not isinstance(outcome.value, str):
            key, kind = record_id(process_id, task), type(outcome.value).__name__
            problem = (
                "it is finished, with neither a value nor an error"
                if outcome.value is None
                else (f"its outcome.value is a {kind}, not a text")
            )
            raise DamagedRecord(key, f"Decision {key}: {problem}")
    return outcomes


def values_of(process_id: str, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return {task id: value} of the outcomes that `gather` returned. Raises DamagedRecord."""
    values: dict[str, Any] = {}
    for task, outcome in _promised_first(outcomes):
        failure, key = _failure(task, outcome), record_id(process_id, task)
        if failure is None:
            values[task] = _decoded(f"Decision {key}: its outcome.value", key, outcome.value or "null", values)
        else:
            values[task] = failure
    return values


def _decoded(description: str, record: str, text: str, values: Mapping[str, Any]) -> Any:
    try:
        return decode(text, values.__getitem__)
    except KeyError as error:
        raise DamagedRecord(
            record, f"{description}: holds a promise of task {error}, for which it does not wait"
        ) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord(record, f"{description}: can't be read as JSON: {error}"[:500]) from None


_PROMISE = re.compile(r'\{"\$promise":"([^"]*)"\}')
"""Matches a promise in the JSON text of a value. In a string that holds such a text, the quotes are escaped."""


def text_size(text: str, outcomes: Mapping[str, Outcome]) -> int:
    """Return the bytes of a JSON text with all its promises replaced by values. A value that is promised a thousand
    times counts a thousand times, so the result may be far larger than all that was read."""
    sizes: dict[str, int] = {}
    for task, outcome in _promised_first(outcomes):
        failure = _failure(task, outcome)
        value = dump(failure) if failure is not None else outcome.value or "null"
        sizes[task] = _kept_size(value, sizes) if outcome.waits else len(value.encode())
    return _kept_size(text, sizes)


def _kept_size(text: str, sizes: Mapping[str, int]) -> int:
    promised = (match[1] for match in _PROMISE.finditer(text))
    return len(text.encode()) + sum(sizes[task] - promise_bytes(task) for task in promised if task in sizes)


def _promised_first(outcomes: Mapping[str, Outcome]) -> Iterator[tuple[str, Outcome]]:
    # Only its parent can promise a task, so a task always comes after the task that promises it.
    return reversed(list(outcomes.items()))


def _failure(task: str, outcome: Outcome) -> Failure | None:
    error = outcome.error
    return None if error is None else Failure(error.kind, error.message, error.actor or "", task)
