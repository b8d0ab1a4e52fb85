"""Taking an actor that is gone out of what is known: its settings, its queue's statistics, and messages left behind.

Nothing that waits may be hidden by it, so it is refused while tasks of it are not done, also those whose turn is still
to come, while a worker that lives serves the actor, and while it is blocked, which would be lifted without a word. A
task that is queued just then loses nothing: it stands in its decision, and all who tell what waits count those. A
message that is lost with the queue is found missing once somebody polls it. A worker that starts just then tells its
settings anew; what it told in between is put back.
"""

from __future__ import annotations

from recovery.engine.naming import hint
from recovery.engine.operators.abort import CATCH_UP_TIMEOUT
from recovery.engine.operators.auditing import audited
from recovery.engine.resources import Resources
from recovery.errors import InputError, UnknownActor
from recovery.records import given


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
