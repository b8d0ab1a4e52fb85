"""Operators' commands that abort processes, and that forget an actor.

Processes are aborted by id, by their interruptions, or because they wait for an actor that no worker serves. Forgetting
an actor removes its settings, the statistics of its queue, and messages that are left in the queue.

Forgetting must not hide anything that waits. So an actor is not forgotten while it has unfinished tasks (even tasks
that are not ready yet), while a living worker serves it, and while it is blocked. Forgetting a blocked actor would
silently lift the block.

A task that is queued at the same moment is not lost: its decision exists, and reports of waiting tasks count decisions.
If its message is removed with the queue, it is found missing once a worker polls the queue. A worker that starts at the
same moment stores its settings again. If the actor turns out to be in use after all, its removed record is put back,
unless a worker has stored a new one.
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
"""Maximum number of processes that are aborted at once. Each may have thousands of tasks."""
TRIES = 5
"""Maximum number of tries to abort a process that others redo at the same time."""
MAX_NAMED = 8
"""Maximum number of workers that a refusal names."""
CATCH_UP_TIMEOUT = 5.0
"""Seconds that a command waits until a majority of MongoDB's members has all writes, so that a task that was queued a
moment ago is not overlooked. In a healthy replica set it takes a thousandth of this."""


def abort_process(resources: Resources, process_id: str, reason: str) -> None:
    """Abort a running or broken process. If an earlier abort of the process was cut off, finish that abort.

    Raises:
        ProcessNotFound: No process has this id.
        InputError: The process has finished, the reason is empty, or others redo the process at the same time.
    """
    reason, process_id = _checked(reason), find_process(resources, process_id).id
    with audited(resources, "process abort", process_id, reason):
        for _ in range(TRIES):  # a redo at the same time may be first
            abort(resources, [process_id], reason)
            match find_process(resources, process_id).state:
                case ProcessState.ABORTED:
                    return
                case ProcessState.FINISHED:
                    raise already_finished(process_id)
        raise InputError(f"process {process_id} is being redone by others at the same time; look at it, and try again")


def already_finished(process_id: str) -> InputError:
    """Return the error for a process that cannot be aborted, because somebody may have read its result."""
    return InputError(f"process {process_id} has finished; there is nothing to abort")


def abort_replaced(resources: Resources, process: Process, reason: str) -> None:
    """Abort a process in whose place another one is started, if it is still broken."""
    with audited(resources, "process abort", process.id, reason) as outcome:
        aborted = abort(resources, [process.id], reason, among=[ProcessState.BROKEN])
        outcome.text = f"{count(aborted, 'process')} aborted"


def abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None = None) -> int:
    """Abort the processes of the selected interruptions, the oldest first, and at most `limit`. Return how many were
    aborted."""
    reason = _checked(reason)
    with audited(resources, "broken abort", described(selection), reason, limit=limit) as outcome:
        aborted = _abort_selected(resources, selection, reason, limit)
        outcome.text = f"{count(aborted, 'process')} aborted"
    return aborted


def _abort_selected(resources: Resources, selection: Selection, reason: str, limit: int | None) -> int:
    aborted = 0
    for page in pages(resources, selection, BATCH):
        listed = list(dict.fromkeys(interruption.process_id for interruption in page))
        while listed and aborted != limit:  # with a limit, some of a batch may have ended already
            batch = listed if limit is None else listed[: limit - aborted]
            listed = listed[len(batch) :]
            aborted += abort(resources, batch, reason)
        if aborted == limit:
            break
    return aborted


def waiting_for(resources: Resources, actor: str) -> list[str]:
    """Return the ids of the processes that have unfinished tasks of an actor that no worker serves.

    Raises:
        UnknownActor: No actor has this name.
        InputError: A worker serves the actor. Its tasks go on, and may be running.
    """
    actor = given.text(actor, "actor")
    resources.store.catch_up(CATCH_UP_TIMEOUT)
    queues = resources.store.waiting.by_actor(count_served=False, wanted=[actor])
    if servers := _served(queues.get(actor)):
        raise InputError(f"{actor} is served {servers}: its tasks go on. Abort processes by their ids")
    process_ids = resources.store.pending.processes_of(actor)
    if not process_ids and actor not in queues:
        raise UnknownActor(f"no actor is named {actor!r}; {hint(actor, list(queues), 'none is known')}")
    return process_ids


def abort_waiting(resources: Resources, actor: str, reason: str, limit: int | None = None) -> int:
    """Abort the processes that wait for this actor, at most `limit`. Return how many were aborted.

    Raises as `waiting_for`. InputError is also raised if a worker begins to serve the actor before all processes are
    aborted. The remaining processes then go on.
    """
    reason = _checked(reason)
    with audited(resources, "abort waiting", actor, reason, limit=limit) as outcome:
        aborted = _abort_all(resources, actor, waiting_for(resources, actor), reason, limit)
        outcome.text = f"{count(aborted, 'process')} aborted"
    return aborted


def _abort_all(resources: Resources, actor: str, waiting: Sequence[str], reason: str, limit: int | None) -> int:
    aborted = 0
    while waiting and aborted != limit:  # some of a batch may have ended already
        batch, waiting = waiting[: _at_most(limit, aborted)], waiting[_at_most(limit, aborted) :]
        aborted += abort_as_seen(resources, _still_waiting(resources, actor, batch, aborted), reason)
    return aborted


def _still_waiting(resources: Resources, actor: str, batch: Sequence[str], aborted: int) -> list[Process]:
    """Return the processes of a batch that still wait for the actor, as they are now. Since the list was made, earlier
    batches were aborted, and a worker may have started. A process that is reopened or redone after this look is not
    aborted."""
    seen = resources.store.processes.briefs(batch)
    resources.store.catch_up(CATCH_UP_TIMEOUT)
    if servers := _served(resources.store.waiting.by_actor(count_served=False, wanted=[actor]).get(actor)):
        raise InputError(f"{actor} is served {servers} by now: {count(aborted, 'process')} aborted, the others go on")
    waiting = resources.store.pending.still_waiting(actor, batch)
    return [process for key, process in seen.items() if key in waiting]


def _served(queue: ActorQueue | None) -> str | None:
    """Return by whom an actor is served, as a part of a message. None if no worker serves it."""
    if queue is None or not queue.is_served:
        return None
    return f"by {', '.join(queue.workers[:MAX_NAMED])}" if queue.workers else "until a moment ago"


def _at_most(limit: int | None, aborted: int) -> int:
    return BATCH if limit is None else min(BATCH, limit - aborted)


def _checked(reason: str) -> str:
    plain = given.exact(reason) if isinstance(reason, str) else ""
    if not plain.strip() or not given.is_unicode(plain):
        raise InputError(f"reason={given.shown(reason)}: say in a few words why; it is shown with the process")
    return plain


def forget_actor(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> list[str]:
    """Forget an actor. Return the names of the settings that an operator had set for it, which are deleted with it.

    Raises:
        UnknownActor: No actor has this name.
        InputError: The actor is in use. Nothing was changed.
    """
    name = given.text(name, "name")
    with audited(resources, "actor forget", name, reason, by=by):
        return _forget(resources, name)


def _forget(resources: Resources, name: str) -> list[str]:
    store = resources.store
    stored = store.actors.get(name)
    if stored is None:
        suggestion = hint(name, sorted(store.actors.stored()), "none is known")
        raise UnknownActor(f"no actor is named {name!r}; {suggestion}")
    store.catch_up(CATCH_UP_TIMEOUT)
    if reason := _in_use(resources, name):
        raise InputError(f"{name} is not forgotten: {reason}")
    # Steps that are safe at any time come first. If the command is cut off here, it can be given again.
    resources.broker.remove(name)
    store.queues.remove(name)
    removed = store.actors.forget(name)
    if removed is None:
        raise InputError(
            f"{name} is not forgotten: it is blocked, or was forgotten just now; ask `recovery actor show`"
        )
    # Check again, because a task may have been added since the first check. The removal was acknowledged by a majority,
    # so this check sees all earlier writes.
    if reason := _in_use(resources, name):
        store.actors.restore(removed)
        raise InputError(f"{name} is not forgotten: {reason}")
    store.preferences.invalidate()
    return sorted(stored.overrides)


def _in_use(resources: Resources, name: str) -> str | None:
    """Return why an actor must not be forgotten, or None."""
    undecided = resources.store.pending.undecided(name)
    if undecided:
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(undecided.items()))
        return (
            f"it has tasks that are not done ({counts}). Start a worker that serves it, or abort their processes: "
            f"`recovery broken abort --waiting-for {name}`"
        )
    queue = resources.store.waiting.by_actor(count_served=False, wanted=[name]).get(name)
    if queue is not None and queue.blocked_seconds is not None:
        return f"it is blocked, and would silently be unblocked: run `recovery actor unblock {name}` first"
    if queue is not None and queue.is_served:
        service = f"served by {', '.join(queue.workers[:8])}" if queue.workers else "its worker was there a moment ago"
        return f"{service}; restart the workers without it first"
    return None
