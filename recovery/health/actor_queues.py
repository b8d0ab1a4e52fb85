"""Checks of actors and their queues: is each served by a live worker, and does one consume each queue with messages?"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.drill.canary_orders import CANARY
from recovery.engine import Resources
from recovery.health import untaken_tasks
from recovery.health.model import Cause, Check, join_names, ok, problem, warning
from recovery.store import ActorQueue
from recovery.wording import count, show_age


def actors(resources: Resources) -> Check:
    """Every actor that tasks wait for, or that a worker ever told of, is served by a worker that lives; none is
    blocked."""
    return judge_actors(list(resources.store.waiting.by_actor().values()))


def judge_actors(actors: Sequence[ActorQueue]) -> Check:
    """Return what the state of these queues means."""
    if not actors:
        return ok("actors", "none known: no worker has ever run here")
    alive = any(queue.workers for queue in actors)
    lonely = [queue for queue in actors if queue.waits_for_nobody]
    blocked = [queue for queue in actors if queue.blocked_seconds is not None]
    unserved = [queue for queue in actors if not queue.is_served and queue not in lonely and queue not in blocked]
    held = [queue for queue in unserved if untaken_tasks.amounts(queue)]
    # Workers need not serve the canary, and no task waits for it but while a drill runs.
    idle = [queue for queue in unserved if queue not in held and queue.actor != CANARY]
    found, todo = [f"{len(actors)} known"], []
    if lonely:
        found.append(f"no worker serves {join_names(map(_waiting, lonely))}")
        todo.append(untaken_tasks.advice(lonely) if alive else "start workers, see `workers`")
    if held:
        found.append(f"no worker serves {join_names(map(_waiting, held))}")
    if held and alive:
        todo.append(f"start a worker that serves {_name(held)}, or `recovery broken abort --waiting-for {_name(held)}`")
    if idle:
        found.append(f"no worker serves {join_names(queue.actor for queue in idle)}, and no task waits")
    if idle and alive:
        todo.append(f"start a worker of their application, or, if gone for good, `recovery actor forget {_name(idle)}`")
    elif (held or idle) and not alive and not lonely:
        todo.append("start workers, see `workers`")
    if blocked:
        found.append(f"blocked: {join_names(map(_blocked, blocked))}")
        todo.append("their tasks wait until `recovery actor unblock NAME`")
    return _of_actors(found, todo, lonely, unserved)


def _of_actors(
    found: Sequence[str], todo: Sequence[str], lonely: Sequence[ActorQueue], unserved: Sequence[ActorQueue]
) -> Check:
    if lonely:
        return problem("actors", Cause.ACTORS_UNSERVED, "; ".join(found), "; ".join(todo))
    if todo:
        cause = Cause.ACTORS_UNSERVED if unserved else Cause.ACTORS_BLOCKED
        return warning("actors", cause, "; ".join(found), "; ".join(todo))
    return ok("actors", f"{found[0]}, all served")


def queues(resources: Resources) -> Check:
    """No messages wait in a queue that nobody consumes. What waits by the records, `actors` tells."""
    store = resources.store
    actors, polled = store.waiting.by_actor(count_served=False), store.queues.all()
    depths = resources.broker.depths(sorted({*actors, *polled}))
    full = {name: depth for name, depth in depths.items() if depth}
    found = f"{count(sum(full.values()), 'message')} in {count(len(depths), 'queue')}"
    lonely = [name for name in full if name not in actors or not actors[name].is_served]
    if not lonely:
        return ok("queues", found)
    now, names = store.now(), []
    for name in lonely:
        last = polled[name].polled_at if name in polled else None
        since = f"polled {show_age((now - last).total_seconds())} ago" if last else "never polled"
        names.append(f"{name} ({full[name]:,}, {since})")
    found += f"; no worker consumes {join_names(names)}"
    waited_for = (actors[name] for name in lonely if name in actors)
    if any(queue.waiting_seconds is not None or queue.waits_for_nobody for queue in waited_for):
        return problem("queues", Cause.QUEUES_UNSERVED, found, "start a worker that serves them, see `actors`")
    # Left by processes that were aborted, or by others than us: whoever takes one discards it.
    return warning(
        "queues",
        Cause.MESSAGES_LEFT,
        f"{found}; no task waits for them",
        "nothing is to be done: a worker that serves them discards them",
    )


def _name(queues: Sequence[ActorQueue]) -> str:
    return queues[0].actor if len(queues) == 1 else "NAME"


def _waiting(queue: ActorQueue) -> str:
    found = untaken_tasks.amounts(queue)
    if queue.waiting_seconds is not None:
        found.insert(1, f"the oldest for {show_age(queue.waiting_seconds)}")
    return f"{queue.actor} ({', '.join(found)})"


def _blocked(queue: ActorQueue) -> str:
    return f"{queue.actor} (for {show_age(queue.blocked_seconds)}, {queue.tasks:,} waiting)"
