"""Values of promises: what a task's arguments, or a process's result, come to.

A task's value may itself promise the values of children that the task scheduled; those are followed until nothing is
promised any more. Each layer is one query, for all promises in it, which brings small values and of the others the
size: what comes to more than may be held is known before it is read.
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
"""What a task is called with, everything that its arguments promise included, as JSON. Each part is in a record of its
own; Python takes some four times as much, in each slot of a worker."""


class NotReady(RecoveryError):
    """What a task needs is not there: a value of a task that is not finished, or its own Task record."""


class CallRefused(RecoveryError):
    """The code of this worker does not accept the call of a task: it may be older or newer than the caller's."""


def arguments(store: Store, task: Task, known: Mapping[str, Outcome] | None = None) -> tuple[list[Any], dict[str, Any]]:
    """What a task is called with, everything that its arguments promise included. Outcomes `known` need not be read.

    The value of a fallible task that failed is its Failure. Raises NotReady if a task that it waits for is not
    finished, or ended with an error that no one can go on with: then nobody should have asked, but for a decision that
    was lost since. Raises TooLarge where they come to over MAX_CALL_BYTES, each value as often as it is promised: it is
    in memory once only, but who passes it on, or returns it, writes it as often. Raises DamagedRecord for what can't be
    read of this task, or of one whose value it needs.
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


def _over(size: int, most: int) -> TooLarge:
    told = f"{size:,}" if size < 10**15 else "over 10^15"
    return TooLarge(f"{told} bytes as JSON with all that is promised, over the limit of {most:,}")


def gather(
    store: Store,
    process_id: str,
    promised: Mapping[str, str | None],
    most: int,
    known: Mapping[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """{task: outcome} of these tasks, {task: id of the decision that scheduled it}, and of all that they promise; who
    promises stands before who is promised.

    Raises TooLarge, before anything large is read, if they come to over `most` bytes with each promise kept once.
    """
    held: dict[str, Held] = {}
    wanted, together = dict(promised), 0
    while wanted:
        found = {task: _whole(known[task]) for task in wanted if known and task in known}
        if missing := [record_id(process_id, task) for task in wanted if task not in found]:
            found |= {split_record_id(key)[1]: one for key, one in store.decisions.outcomes(missing).items()}
        layer: dict[str, str | None] = {}
        for task, scheduled_by in wanted.items():
            one = found.get(task)
            if one is None:
                raise _not_there(store, process_id, task, scheduled_by)
            held[task] = one
            together += one.size - sum(map(promise_bytes, one.outcome.waits))
            layer |= dict.fromkeys(one.outcome.waits, record_id(process_id, task))
        if together > most:
            raise _over(together, most)
        wanted = {task: scheduled_by for task, scheduled_by in layer.items() if task not in held}
    return _with_values(store, process_id, held)


def _not_there(store: Store, process_id: str, task: str, scheduled_by: str | None) -> RecoveryError:
    """Why a task that is waited for has no value: it is lost, and will come again, unless there never was one."""
    if scheduled_by is not None and store.decisions.schedules(scheduled_by, task) is False:
        told = f"Decision {scheduled_by}: the value of task {task!r} is waited for, which is none of its children"
        return DamagedRecord(scheduled_by, told)
    return NotReady(f"process {process_id}: task {task} has no value yet, but is waited for")


def _whole(outcome: Outcome) -> Held:
    return Held(outcome, len((outcome.value or "").encode()), left_out=False)


def _with_values(store: Store, process_id: str, held: Mapping[str, Held]) -> dict[str, Outcome]:
    outcomes = {task: one.outcome for task, one in held.items()}
    left = {record_id(process_id, task): one.outcome.pass_key for task, one in held.items() if one.left_out}
    read = dict(store.decisions.values(left))
    for key in left:
        task = split_record_id(key)[1]
        if key not in read:  # gone, or another by now, since its size was read
            raise NotReady(f"process {process_id}: task {task} has no value any more, but is waited for")
        outcomes[task] = replace(outcomes[task], value=read[key])
    for task, outcome in outcomes.items():
        if outcome.error is None and not isinstance(outcome.value, str):
            key, kind = record_id(process_id, task), type(outcome.value).__name__
            told = (
                "it is finished, with neither a value nor an error"
                if outcome.value is None
                else (f"its outcome.value is a {kind}, not a text")
            )
            raise DamagedRecord(key, f"Decision {key}: {told}")
    return outcomes


def values_of(process_id: str, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The values of what `gather` found. Raises DamagedRecord."""
    values: dict[str, Any] = {}
    for task, outcome in _promised_first(outcomes):
        failure, key = _failure(task, outcome), record_id(process_id, task)
        if failure is None:
            values[task] = _decoded(f"Decision {key}: its outcome.value", key, outcome.value or "null", values)
        else:
            values[task] = failure
    return values


def _decoded(what: str, record: str, text: str, values: Mapping[str, Any]) -> Any:
    try:
        return decode(text, values.__getitem__)
    except KeyError as error:
        raise DamagedRecord(record, f"{what}: holds a promise of task {error}, for which it does not wait") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedRecord(record, f"{what}: can't be read as JSON: {error}"[:500]) from None


_PROMISE = re.compile(r'\{"\$promise":"([^"]*)"\}')
"""A promise in a value's text. In a string that holds such a text its quotes are escaped."""


def text_size(text: str, outcomes: Mapping[str, Outcome]) -> int:
    """The bytes of a JSON text with every promise in it kept by these outcomes. What is promised a thousand times is a
    thousand times in it: far more, perhaps, than all that was read."""
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
    # Only its own decider can promise a child, so a promised task always stands after who promises it.
    return reversed(list(outcomes.items()))


def _failure(task: str, outcome: Outcome) -> Failure | None:
    error = outcome.error
    return None if error is None else Failure(error.kind, error.message, error.actor or "", task)
