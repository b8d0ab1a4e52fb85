"""What an operator does to have processes aborted: one, those of interruptions, and those that wait for an actor which
nobody serves; and to forget such an actor: its settings, its queue's statistics, and messages left behind.

Nothing that waits may be hidden by that, so it is refused while tasks of it are not done, also those whose turn is
still to come, while a worker that lives serves the actor, and while it is blocked, which would be lifted without a
word. A task that is queued just then loses nothing: it stands in its decision, and all who tell what waits count those.
A message that is lost with the queue is found missing once somebody polls it. A worker that starts just then tells its
settings anew; what it told in between is put back.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.end.abort import abort, abort_as_seen
from recovery.engine.lookup import find_process, hint
from recovery.engine.operators.auditing import audited
from recovery.engine.operators.restart import described, pages
from recovery.engine.resources import Resources
from recovery.errors import InputError, UnknownActor
from recovery.records import Process, ProcessState, given
from recovery.store import ActorQueue, Selection
from recovery.wording import count

BATCH = 100
"""Processes that are aborted together: each may have thousands of tasks."""
TRIES = 5
"""To abort one process that others have done again meanwhile."""
MAX_NAMED = 8
"""Workers that a refusal names."""
CATCH_UP_TIMEOUT = 5.0
"""Seconds that an operator waits for the majority, a thousand times what it takes while all is well: what was queued a
moment ago is not to be overlooked."""


def abort_process(resources: Resources, process_id: str, reason: str) -> None:
    """Abort a process, whether it runs or is broken. One that is aborted already is finished, if it is not.

    Raises ProcessNotFound, and InputError for one that has finished: its result was told.
    """
    reason, process_id = _checked(reason), find_process(resources, process_id).id
    with audited(resources, "process abort", process_id, reason):
        for _ in range(TRIES):  # whoever has it done again at the same time overtakes it
            abort(resources, [process_id], reason)
            match find_process(resources, process_id).state:
                case ProcessState.ABORTED:
                    return
                case ProcessState.FINISHED:
                    raise already_finished(process_id)
        raise InputError(f"process {process_id} is done again by somebody at the same time; look at it, and abort it")


def already_finished(process_id: str) -> InputError:
    """Return the error for a process whose result somebody may have read."""
    return InputError(f"process {process_id} has finished; there is nothing to abort")


def abort_replaced(resources: Resources, process: Process, reason: str) -> None:
    """Abort a process in whose place another is started, as far as it is still broken."""
    with audited(resources, "process abort", process.id, reason) as outcome:
        done = abort(resources, [process.id], reason, among=[ProcessState.BROKEN])
        outcome.text = f"{count(done, 'process')} aborted"


def abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None = None) -> int:
    """Abort the processes of all interruptions selected, the oldest first, at most `limit` of them; how many were."""
    reason = _checked(reason)
    with audited(resources, "broken abort", described(selection), reason, limit=limit) as outcome:
        done = _abort_selected(resources, selection, reason, limit)
        outcome.text = f"{count(done, 'process')} aborted"
    return done


def _abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None) -> int:
    done = 0
    for page in pages(resources, selection, BATCH):
        listed = list(dict.fromkeys(one.process_id for one in page))
        while listed and done != limit:  # more than once where some are over by now
            batch = listed if limit is None else listed[: limit - done]
            listed = listed[len(batch) :]
            done += abort(resources, batch, reason)
        if done == limit:
            break
    return done


def waiting_for(resources: Resources, actor: str) -> list[str]:
    """Ids of the processes that have tasks to be done by an actor which no worker serves.

    Raises UnknownActor, and InputError for one that is served: its tasks go on, and may be at it.
    """
    actor = given.text(actor, "actor")
    resources.store.catch_up(CATCH_UP_TIMEOUT)
    queues = resources.store.waiting.by_actor(count_served=False, wanted=[actor])
    if who := _served(queues.get(actor)):
        raise InputError(f"{actor} is served {who}: its tasks go on. Abort processes by their ids")
    found = resources.store.pending.processes_of(actor)
    if not found and actor not in queues:
        raise UnknownActor(f"no actor is named {actor!r}; {hint(actor, list(queues), 'none is known')}")
    return found


def abort_waiting(resources: Resources, actor: str, reason: str, limit: int | None = None) -> int:
    """Abort these processes, at most `limit` of them; how many were. Raises as `waiting_for`, and where the actor is
    served before all are aborted: the others are left alone."""
    reason = _checked(reason)
    with audited(resources, "abort waiting", actor, reason, limit=limit) as outcome:
        done = _abort_all(resources, actor, waiting_for(resources, actor), reason, limit)
        outcome.text = f"{count(done, 'process')} aborted"
    return done


def _abort_all(resources: Resources, actor: str, waiting: Sequence[str], reason: str, limit: int | None) -> int:
    done = 0
    while waiting and done != limit:  # more than once where some are over by now
        batch, waiting = waiting[: _at_most(limit, done)], waiting[_at_most(limit, done) :]
        done += abort_as_seen(resources, _still_waiting(resources, actor, batch, done), reason)
    return done


def _still_waiting(resources: Resources, actor: str, batch: Sequence[str], done: int) -> list[Process]:
    """Those that wait for the actor now: the list was made before the batches ahead of this one were aborted, and a
    worker may have come since. As they are: what is reopened or done again after this look is left alone."""
    seen = resources.store.processes.briefs(batch)
    resources.store.catch_up(CATCH_UP_TIMEOUT)
    if who := _served(resources.store.waiting.by_actor(count_served=False, wanted=[actor]).get(actor)):
        raise InputError(f"{actor} is served {who} by now: {count(done, 'process')} aborted, the others go on")
    waiting = resources.store.pending.still_waiting(actor, batch)
    return [process for key, process in seen.items() if key in waiting]


def _served(queue: ActorQueue | None) -> str | None:
    """By whom the tasks of an actor are taken; None: by nobody."""
    if queue is None or not queue.is_served:
        return None
    return f"by {', '.join(queue.workers[:MAX_NAMED])}" if queue.workers else "until a moment ago"


def _at_most(limit: int | None, done: int) -> int:
    return BATCH if limit is None else min(BATCH, limit - done)


def _checked(reason: str) -> str:
    plain = given.exact(reason) if isinstance(reason, str) else ""
    if not plain.strip() or not given.is_unicode(plain):
        raise InputError(f"reason={given.shown(reason)}: say in a few words why; it is shown with the process")
    return plain


def forget_actor(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> list[str]:
    """Forget an actor; the settings that an operator had set for it, which are gone with it.

    Raises UnknownActor, and InputError where it is not gone for good; then nothing is changed.
    """
    name = given.text(name, "name")
    with audited(resources, "actor forget", name, reason, by=by):
        return _forget(resources, name)


def _forget(resources: Resources, name: str) -> list[str]:
    store = resources.store
    stored = store.actors.get(name)
    if stored is None:
        there = hint(name, sorted(store.actors.stored()), "none is known")
        raise UnknownActor(f"no actor is named {name!r}; {there}")
    store.catch_up(CATCH_UP_TIMEOUT)
    if reason := _in_use(resources, name):
        raise InputError(f"{name} is not forgotten: {reason}")
    # What may be done at any time comes first: who was cut off here forgets it again.
    resources.broker.remove(name)
    store.queues.remove(name)
    kept = store.actors.forget(name)
    if kept is None:
        raise InputError(
            f"{name} is not forgotten: it is blocked, or was forgotten just now; ask `recovery actor show`"
        )
    # A majority has by now all that was written before: the removal waited for it.
    if reason := _in_use(resources, name):
        store.actors.restore(kept)
        raise InputError(f"{name} is not forgotten: {reason}")
    store.preferences.invalidate()
    return sorted(stored.overrides)


def _in_use(resources: Resources, name: str) -> str | None:
    """Why an actor may not be forgotten."""
    undecided = resources.store.pending.undecided(name)
    if undecided:
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(undecided.items()))
        return (
            f"it has tasks that are not done ({counts}). Start a worker that serves it, or abort their processes: "
            f"`recovery broken abort --waiting-for {name}`"
        )
    queue = resources.store.waiting.by_actor(count_served=False, wanted=[name]).get(name)
    if queue is not None and queue.blocked_seconds is not None:
        return f"it is blocked, and would not be any more: `recovery actor unblock {name}` first"
    if queue is not None and queue.is_served:
        who = f"served by {', '.join(queue.workers[:8])}" if queue.workers else "its worker was there a moment ago"
        return f"{who}; restart the workers without it first"
    return None
