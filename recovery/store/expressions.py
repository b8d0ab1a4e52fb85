"""Expressions and filters of MongoDB's query language that several modules share.

All times are the database's (`$$NOW`). Durations in expressions are milliseconds; parameters named `seconds` are
seconds. Another program may write any value into a field, and one failing expression would make a whole batch fail. So
expressions on fields that we add to or compute with accept values of every type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from recovery.limits import LONGEST, SILENCE_FAR_OFF
from recovery.records import TaskLimit
from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR

if TYPE_CHECKING:
    from recovery.retry.policy import Backoff

Expression = dict[str, Any]

OVERDUE: Expression = {
    # Without $exists MongoDB does not use the partial index, and reads the whole collection.
    "recoveryTime": {"$exists": True},
    "$expr": {"$lte": ["$recoveryTime", "$$NOW"]},
}
"""Filter: the deadline is past."""
NOT_DUE: Expression = {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", "$$NOW"]}}
"""Filter: the deadline is in the future."""


def after(seconds: float) -> Expression:
    """Return the time this many seconds from now."""
    return {"$add": ["$$NOW", round(seconds * 1000)]}


ALIVE: Expression = {"$and": [{"$gt": ["$recoveryTime", "$$NOW"]}, {"$lt": ["$recoveryTime", after(SILENCE_FAR_OFF)]}]}
"""Condition: a worker is alive, because its deadline is in the future, and no further than a worker can have set it.
After a clock that was far ahead is set back, no worker counts as alive until its next heartbeat.
"""


def near_now(moment: str, seconds: float) -> Expression:
    """Return a condition: `moment` is a date within this many seconds before or after now.

    A date in the near future counts, because the clock may have been set back, or another server may have become
    primary. A date further ahead is not trusted.
    """
    return {"$and": [{"$gt": [moment, after(-seconds)]}, {"$lt": [moment, after(seconds)]}]}


def latest_past(*moments: Any) -> Expression:
    """Return the latest of these moments that is a date and not in the future, or null."""
    return {"$max": [_until("$$NOW", moment) for moment in moments]}


def read_past(*fields: str) -> Expression:
    """Return a stage that replaces each of these fields by `past_or_null`."""
    return {"$set": {field: past_or_null(f"${field}") for field in fields}}


def past_or_null(moment: Any) -> Expression:
    """Return the date if it is at most 1 s in the future, else null. For queries."""
    # `$$NOW` is fixed when a query begins. What the query reads may have been written up to 1 s later, while it waited.
    return _until(after(1.0), moment)


def _until(end: Any, moment: Any) -> Expression:
    """Return `moment` if it is a date up to `end`, else null."""
    return {"$cond": [{"$and": [{"$eq": [{"$type": moment}, "date"]}, {"$lte": [moment, end]}]}, moment, None]}


def date_of(field: str | Expression, otherwise: Any = "$$NOW") -> Expression:
    """Return the date in a field, or `otherwise` if the field holds no date."""
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


def past_of(field: str | Expression) -> Expression:
    """Return the date in a field, but at most now; now if the field holds no date.

    A date in the future was not written by this project, and may be so far ahead that adding to it would fail.
    """
    return {"$min": [date_of(field), "$$NOW"]}


def number_of(field: str, otherwise: float = 0) -> Expression:
    """Return the number in a field if it is at least 0, or `otherwise` if the field holds no such number."""
    # MongoDB orders NaN below all numbers, so this excludes NaN too.
    usable = {"$and": [{"$isNumber": field}, {"$gte": [field, 0]}]}
    return {"$cond": [usable, field, otherwise]}


FIRST_QUEUED: Expression = date_of("$enqueuedAt")
"""When a task was first queued, or now if this update queues it for the first time."""

_FIRST_QUEUED_BY_NOW: Expression = past_of("$enqueuedAt")


def idle_time(seconds: str) -> Expression:
    """Return a record's idle timeout in milliseconds, from a field in seconds: at most ten years, and 60 s if the field
    holds no number.

    Earlier versions accepted longer timeouts.
    """
    return {"$multiply": [{"$min": [number_of(seconds, 60), LONGEST]}, 1000]}


def age(since: str) -> Expression:
    """Return the milliseconds since a date of a record: 0 without a date, and at most ten years."""
    # Limit the date before subtracting, because a difference that exceeds the range of milliseconds is an error.
    passed = {"$subtract": ["$$NOW", {"$max": [past_of(since), after(-LONGEST)]}]}
    return {"$min": [passed, LONGEST * 1000]}


def by_policy(policy: Backoff, failures: Expression, unit: float) -> Expression:
    """Return the delay of a policy in milliseconds, after `failures` failures beyond the first one in a row.

    Args:
        policy: Gives the initial delay, the coefficient and the maximum.
        failures: Number of delays before this one.
        unit: Seconds of one unit of the policy's durations.
    """
    # Limit the exponent: a larger one would make the power infinite.
    max_exponent = (
        0 if policy.coefficient == 1 else math.ceil(math.log(policy.maximum / policy.initial, policy.coefficient))
    )
    growth = {"$pow": [policy.coefficient, {"$min": [max_exponent, {"$max": [0, failures]}]}]}
    delay = {"$multiply": [policy.initial, growth]}
    return {"$multiply": [{"$min": [policy.maximum, delay]}, round(unit * 1000)]}


def by_policy_since(policy: Backoff, since: str) -> Expression:
    """Return the next delay of a policy in milliseconds, for a record that does not count its failures.

    The delay is worked out from the time since the first failure. After the delays of a policy have added up to this
    time, this is its next delay.

    Args:
        policy: Its durations are in seconds.
        since: The field with the date of the first failure.
    """
    initial, maximum = policy.initial * 1000, policy.maximum * 1000
    return {"$min": [round(maximum), {"$add": [round(initial), {"$multiply": [policy.coefficient - 1, age(since)]}]}]}


def later_by(milliseconds: Expression) -> Expression:
    """Return the time this many milliseconds from now, with a jitter of 10 %, and at most ten years ahead."""
    return {"$add": ["$$NOW", {"$min": [jittered(milliseconds), LONGEST * 1000]}]}


def task_end(seconds: float) -> Expression:
    """Return when a task's time as a whole is over: this many seconds after it was first queued."""
    return {"$add": [_FIRST_QUEUED_BY_NOW, round(seconds * 1000)]}


def work_deadline(timeout: float, limit: TaskLimit | None) -> Expression:
    """Return the deadline of an attempt: `timeout` seconds from now.

    A forced `task_timeout` makes it earlier, if the task's time as a whole ends before. A `task_timeout` that is not
    forced waits for the attempt to end.
    """
    if limit is None or not limit.forced:
        return after(timeout)
    return {"$min": [after(timeout), task_end(limit.seconds)]}


def task_end_by_actor(seconds: Mapping[str, float]) -> Expression:
    """Return when a task's time as a whole is over, for tasks of many actors. Null for an actor that is not in
    `seconds`.

    Args:
        seconds: {actor: its task_timeout in seconds}.
    """
    names, times = list(seconds), [round(timeout * 1000) for timeout in seconds.values()]
    # `$indexOfArray` returns -1 for an unknown name, and -1 is the last element: null.
    time = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(names), "$actor"]}]}
    return {"$add": [_FIRST_QUEUED_BY_NOW, time]}


def jittered(milliseconds: Any) -> Expression:
    """Return a duration changed at random by up to 10 %, so that records that fell due together do not always fall due
    together.
    """
    return {"$multiply": [milliseconds, {"$add": [0.9, {"$multiply": [0.2, {"$rand": {}}]}]}]}


def plus_one(field: str) -> Expression:
    """Return the field's value plus one. A missing field, or one that holds no number, counts as 0."""
    return {"$add": [number_of(f"${field}"), 1]}


def size_of(field: str) -> Expression:
    """Return the bytes of a field: exact for a text, approximate for other types, 0 if the field is missing."""
    return {"$max": [0, {"$subtract": [{"$bsonSize": {"v": f"${field}"}}, {"$bsonSize": literal({"v": ""})}]}]}


def without(field: str) -> Expression:
    """Return the bytes of a record without the value of this field."""
    return {"$subtract": [{"$bsonSize": "$$ROOT"}, size_of(field)]}


def literal(value: Any) -> Expression:
    """Return an expression for exactly this value, even if it looks like an expression itself."""
    return {"$literal": value}


def literals(fields: Mapping[str, Any]) -> Expression:
    """Return {field: its value as a `literal`}, for a `$set` stage."""
    return {name: literal(value) for name, value in fields.items()}


def by_id(values: Mapping[str, Any]) -> Expression:
    """Return, of {id: value}, the value for the record that is being updated. Its id must be in `values`."""
    if len(values) == 1:
        return literal(next(iter(values.values())))
    # The server builds a lookup table from constant lists, so it does not search the list for each record.
    return {"$arrayElemAt": [literal(list(values.values())), {"$indexOfArray": [literal(list(values)), "$_id"]}]}


def earlier(epoch: int) -> Expression:
    """Return a filter: records of an earlier epoch than this one, or without an epoch.

    A record without an epoch may be of any, so it does not count as one of this epoch.
    """
    return {"epoch": {"$not": {"$gte": epoch}}}


def record_range(process_id: str) -> Expression:
    """Return a filter for all records `P/...` of a process: one range of the index `_id`."""
    return {"_id": {"$gte": process_id + SEPARATOR, "$lt": process_id + AFTER_SEPARATOR}}


def record_ranges(process_ids: Iterable[str]) -> Expression:
    """Return a filter for all records `P/...` of at least one process: one range of the index `_id` for each."""
    return {"$or": [record_range(process_id) for process_id in process_ids]}
