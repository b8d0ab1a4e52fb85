"""Schedule a failed task again, from the task that got its failure."""

from __future__ import annotations

from datetime import timedelta

from recovery.engine.actors.actor import encode_call
from recovery.engine.actors.context import current
from recovery.engine.actors.resolve import arguments
from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.records import Failure, Promise, given
from recovery.records.ids import record_id


def reschedule(
    failure: Failure, *, delay: timedelta | float | str | None = None, fallible: bool | None = None
) -> Promise:
    """Schedule a failed task again, as a child of the running task.

    The new task has the actor, the arguments, the retry options and the context of the failed task. Promises in the
    arguments are replaced by their values.

    Args:
        failure: The `Failure` that the running task got in place of the failed task's value.
        delay: How long the new task waits, in seconds, as a timedelta, or as a text such as `5m`. At most 10 years.
        fallible: Whether the new task may fail without breaking the process. The default is that of the failed task:
            True.

    Returns:
        A promise of the new task's value.

    Raises:
        NotInActor: No actor runs in this thread.
        InputError: `failure` is not a failure of a task of this process, or `delay` is not an allowed duration.
        TooLarge: The arguments, with the values that they promised, are too large for one record.

    Example:
        @app.actor()
        def confirm(paid):
            if isinstance(paid, Failure):
                return confirm.schedule(reschedule(paid, delay="5m"))
            return f"paid: {paid}"
    """
    attempt = current("reschedule(...)")
    if not isinstance(failure, Failure):
        raise InputError(f"reschedule({given.shown(failure)}): must be the Failure that the running task got")
    try:
        seconds = given.duration(delay)
    except ValueError as error:
        raise InputError(f"reschedule(delay={given.shown(delay)}): {error}") from None
    if delay is not None and (seconds is None or not 0 <= seconds <= LONGEST):
        raise InputError(f"reschedule(delay={given.shown(delay)}): must be from 0 seconds to 10 years")
    process_id, store = attempt.decision.process_id, attempt.store
    task = store.tasks.get(record_id(process_id, failure.task))
    if task is None:
        raise InputError(f"reschedule(...): process {process_id} has no task {given.shown(failure.task)}")
    positional, named = arguments(store, task)
    encoded = encode_call(task.actor, tuple(positional), named)
    may_fail = task.fallible if fallible is None else fallible
    return attempt.add_child(
        task.actor, encoded, None, seconds, may_fail or None, retry=task.retry, context=task.context
    )
