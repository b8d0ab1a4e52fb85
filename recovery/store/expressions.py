"""Small pieces of MongoDB's query language that the collections' modules share."""

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
    # Without $exists the partial index is not used and the whole collection is read.
    "recoveryTime": {"$exists": True},
    "$expr": {"$lte": ["$recoveryTime", "$$NOW"]},
}
"""The deadline is past by the database's clock."""
NOT_DUE: Expression = {"recoveryTime": {"$exists": True}, "$expr": {"$gt": ["$recoveryTime", "$$NOW"]}}
"""The deadline is to come by the database's clock."""


def after(seconds: float) -> Expression:
    """Return a time this many seconds from now, by the database's clock."""
    return {"$add": ["$$NOW", round(seconds * 1000)]}


ALIVE: Expression = {"$and": [{"$gt": ["$recoveryTime", "$$NOW"]}, {"$lt": ["$recoveryTime", after(SILENCE_FAR_OFF)]}]}
"""A worker lives: its deadline is to come, and one that it may have written. While a clock that was far ahead is set
back none lives by this, until its next heartbeat."""


def near_now(moment: str, seconds: float) -> Expression:
    """Whether a moment is a date not so long ago. One that is to come for less than that counts too: a clock was set
    back since, or another member is the primary now; one further off says nothing."""
    return {"$and": [{"$gt": [moment, after(-seconds)]}, {"$lt": [moment, after(seconds)]}]}


def latest_past(*moments: Any) -> Expression:
    """The last of these moments that is a date and not still to come; null if there is none."""
    return {"$max": [_until("$$NOW", moment) for moment in moments]}


def read_past(*fields: str) -> Expression:
    """A stage that reads these fields so: `past_or_null`."""
    return {"$set": {field: past_or_null(f"${field}") for field in fields}}


def past_or_null(moment: Any) -> Expression:
    """For readers: a date that is not still to come, and null for what else is there."""
    # A query has one time, and what it reads may have been written while it waited: by so much may that be later.
    return _until(after(1.0), moment)


def _until(end: Any, moment: Any) -> Expression:
    return {"$cond": [{"$and": [{"$eq": [{"$type": moment}, "date"]}, {"$lte": [moment, end]}]}, moment, None]}


def date_of(field: str | Expression, otherwise: Any = "$$NOW") -> Expression:
    """A field's date; something else where another program put what is none. One value that can't be worked with would
    be an error for the whole batch that it is in."""
    return {"$cond": [{"$eq": [{"$type": field}, "date"]}, field, otherwise]}


def past_of(field: str | Expression) -> Expression:
    """The same, and now for one that is still to come: it is none of ours, and may be so far off that nothing can be
    added to it."""
    return {"$min": [date_of(field), "$$NOW"]}


def number_of(field: str, otherwise: float = 0) -> Expression:
    """A field's number, 0 or more; something else where there is none."""
    # NaN is less than all numbers.
    usable = {"$and": [{"$isNumber": field}, {"$gte": [field, 0]}]}
    return {"$cond": [usable, field, otherwise]}


FIRST_QUEUED: Expression = date_of("$enqueuedAt")
"""When a task was first queued; now, if it is being queued for the first time."""

_FIRST_QUEUED_BY_NOW: Expression = past_of("$enqueuedAt")


def idle_time(seconds: str) -> Expression:
    """A record's own time, in milliseconds; ten years for one that is longer, which an older version took."""
    return {"$multiply": [{"$min": [number_of(seconds, 60), LONGEST]}, 1000]}


def age(since: str) -> Expression:
    """How long ago a date of a record is, in milliseconds; 0 without one, and at most ten years."""
    # Of two dates: what is further off than milliseconds can tell is an error.
    passed = {"$subtract": ["$$NOW", {"$max": [past_of(since), after(-LONGEST)]}]}
    return {"$min": [passed, LONGEST * 1000]}


def by_policy(policy: Backoff, failures: Expression, unit: float) -> Expression:
    """The delay of a policy after so many failures in a row besides the first, in milliseconds; its durations are in
    units of so many seconds."""
    # Of a larger exponent the power is no number any more.
    most = 0 if policy.coefficient == 1 else math.ceil(math.log(policy.maximum / policy.initial, policy.coefficient))
    growth = {"$pow": [policy.coefficient, {"$min": [most, {"$max": [0, failures]}]}]}
    delay = {"$multiply": [policy.initial, growth]}
    return {"$multiply": [{"$min": [policy.maximum, delay]}, round(unit * 1000)]}


def by_policy_since(policy: Backoff, since: str) -> Expression:
    """The same, by a policy in seconds, where no record counts its failures: by how long ago the first one was. When a
    policy whose delays grow by its coefficient has waited for that long, this is its next delay."""
    initial, most = policy.initial * 1000, policy.maximum * 1000
    return {"$min": [round(most), {"$add": [round(initial), {"$multiply": [policy.coefficient - 1, age(since)]}]}]}


def later_by(milliseconds: Expression) -> Expression:
    """So long after now, a tenth more or less, and ten years at the most."""
    return {"$add": ["$$NOW", {"$min": [jittered(milliseconds), LONGEST * 1000]}]}


def task_end(seconds: float) -> Expression:
    """When a task's time as a whole is over."""
    return {"$add": [_FIRST_QUEUED_BY_NOW, round(seconds * 1000)]}


def work_deadline(timeout: float, limit: TaskLimit | None) -> Expression:
    """When an attempt is looked at: a limit that is not forced waits for it to end."""
    if limit is None or not limit.forced:
        return after(timeout)
    return {"$min": [after(timeout), task_end(limit.seconds)]}


def task_end_by_actor(seconds: Mapping[str, float]) -> Expression:
    """The same for tasks of many actors, {actor: seconds}; null for an actor that is not among them."""
    names, times = list(seconds), [round(one * 1000) for one in seconds.values()]
    # A name that is not found has the place -1, which is the last.
    found = {"$arrayElemAt": [literal([*times, None]), {"$indexOfArray": [literal(names), "$actor"]}]}
    return {"$add": [_FIRST_QUEUED_BY_NOW, found]}


def jittered(milliseconds: Any) -> Expression:
    """A time span, a tenth more or less: what fell due together is not to fall due together for ever."""
    return {"$multiply": [milliseconds, {"$add": [0.9, {"$multiply": [0.2, {"$rand": {}}]}]}]}


def plus_one(field: str) -> Expression:
    """The field's value and one more; a missing field counts as 0, as does what is no number."""
    return {"$add": [number_of(f"${field}"), 1]}


def size_of(field: str) -> Expression:
    """The bytes of a field: of a text exactly, of whatever else it may hold roughly. 0 of a missing one."""
    return {"$max": [0, {"$subtract": [{"$bsonSize": {"v": f"${field}"}}, {"$bsonSize": literal({"v": ""})}]}]}


def without(field: str) -> Expression:
    """The bytes of a record without this field."""
    return {"$subtract": [{"$bsonSize": "$$ROOT"}, size_of(field)]}


def literal(value: Any) -> Expression:
    """A value that is not to be read as an expression, whatever it holds."""
    return {"$literal": value}


def literals(fields: Mapping[str, Any]) -> Expression:
    """{field: its value as a `literal`}, for a stage that sets them."""
    return {name: literal(value) for name, value in fields.items()}


def by_id(values: Mapping[str, Any]) -> Expression:
    """Of {id: value} the value of the record that is updated; it has to be among them."""
    if len(values) == 1:
        return literal(next(iter(values.values())))
    # The server makes a table of a list that never changes: it does not look through it for each record.
    return {"$arrayElemAt": [literal(list(values.values())), {"$indexOfArray": [literal(list(values)), "$_id"]}]}


def earlier(epoch: int) -> Expression:
    """Records of an epoch before this one, or of none: of that nothing says that it is of this one."""
    return {"epoch": {"$not": {"$gte": epoch}}}


def record_range(process_id: str) -> Expression:
    """The records `P/...` of a process."""
    return {"_id": {"$gte": process_id + SEPARATOR, "$lt": process_id + AFTER_SEPARATOR}}


def record_ranges(process_ids: Iterable[str]) -> Expression:
    """The records `P/...` of any of these processes, one at least: a range of the index `_id` for each."""
    return {"$or": [record_range(process_id) for process_id in process_ids]}
