"""Checks of who works: workers, and the queues that they consume."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from recovery.drill.orders import CANARY
from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.health import waiting
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, warning
from recovery.records import ScannerRun
from recovery.scan import WorkerScanner
from recovery.store import ActorQueue
from recovery.wording import count, show_age

START = "start the service that runs your workers, or one by hand: `recovery worker --app package.module:name`"

LOST_TOLD = 120.0
"""Seconds for which a worker that was lost is told of: by then somebody has looked, or it was not missed."""
PING_TIMEOUT = 0.7
"""Seconds for which answers of workers are waited for; each takes milliseconds."""


def workers(resources: Resources) -> Check:
    """Somebody lives, and none is silent for long."""
    store = resources.store
    alive = store.overview.workers_alive()
    silent = store.workers.silent(100)
    found = f"{len(alive)} alive{f': {join_names(worker.name for worker in alive)}' if alive else ''}"
    if silent:
        found += f"; silent: {join_names(worker.name for worker in silent)}"
    if not alive and (answering := _answering(resources)):
        return judge_heartbeats("workers", set(), answering)
    if not alive:
        return problem("workers", Cause.NO_WORKERS, found, START)
    if not any(worker.queues for worker in alive):  # a sweep's, say
        return problem("workers", Cause.NO_WORKERS, f"{found}; none of them serves an actor", START)
    if silent:
        # Others take what a silent one held and remove its record, within a nudge.
        advice = (
            "they ended, hang, or don't reach MongoDB: see whether they run, and their network to it. What they held "
            "is requeued by others; if they stay listed no scanner runs: see `scanners`"
        )
        return warning("workers", Cause.WORKERS_SILENT, found, advice)
    run = store.scanners.all().get(WorkerScanner.name)
    return judge_lost(found, {worker.name for worker in alive}, run, store.now())


def judge_lost(found: str, alive: Collection[str], run: ScannerRun | None, now: datetime) -> Check:
    """What it means that workers were lost a while ago, as their scanner noted; others live."""
    if run is None or run.lost_at is None or (ago := (now - run.lost_at).total_seconds()) > LOST_TOLD:
        return ok("workers", found)
    if not (lost := [name for name in run.lost if name not in alive]):
        return ok("workers", found)
    found += f"; lost {show_age(max(0.0, ago))} ago: {join_names(lost)}"
    advice = "see whether they run, and their network to MongoDB and Redis; what they held was requeued at once"
    return warning("workers", Cause.WORKERS_LOST, found, advice)


def heartbeats(resources: Resources) -> Check:
    """Each worker that answers through Redis writes heartbeats as well: one without MongoDB has no record, or an
    overdue one, and would look as if it had ended."""
    answering = resources.broker.workers_answering(resources.settings.database, PING_TIMEOUT)
    if answering is None:
        return ok("heartbeats", "not compared with who answers in Redis: this user may not ask")
    return judge_heartbeats(
        "heartbeats", {worker.name for worker in resources.store.overview.workers_alive()}, answering
    )


def _answering(resources: Resources) -> list[str]:
    """Workers that answer through Redis, as far as that can be known."""
    try:
        return resources.broker.workers_answering(resources.settings.database, PING_TIMEOUT) or []
    except BrokerError:
        return []


def judge_heartbeats(check: str, alive: Collection[str], answering: Collection[str]) -> Check:
    """What it means who writes heartbeats and who answers in Redis."""
    without = [name for name in answering if name not in alive]
    if without:
        advice = (
            "where MongoDB was away until just now, ask again. Else look at the network from there to MongoDB, and at "
            "their logs: until then they take no task"
        )
        found = f"run and write no heartbeat to MongoDB: {join_names(without)}"
        level = Level.WARNING if alive else Level.PROBLEM  # nobody is there who does the work
        return Check(check, level, Cause.WORKER_WITHOUT_MONGODB, found, advice)
    return ok(check, f"written by {count(len(alive), 'worker')}")


def actors(resources: Resources) -> Check:
    """Every actor that tasks wait for, or that a worker ever told of, is served by a worker that lives; none is
    blocked."""
    return judge_actors(list(resources.store.waiting.by_actor().values()))


def judge_actors(actors: Sequence[ActorQueue]) -> Check:
    """What their queues mean."""
    if not actors:
        return ok("actors", "none known: no worker has ever run here")
    alive = any(queue.workers for queue in actors)
    lonely = [queue for queue in actors if queue.waits_for_nobody]
    blocked = [queue for queue in actors if queue.blocked_seconds is not None]
    unserved = [queue for queue in actors if not queue.is_served and queue not in lonely and queue not in blocked]
    held = [queue for queue in unserved if waiting.amounts(queue)]
    # Workers need not serve the canary, and no task waits for it but while a drill runs.
    idle = [queue for queue in unserved if queue not in held and queue.actor != CANARY]
    found, todo = [f"{len(actors)} known"], []
    if lonely:
        found.append(f"no worker serves {join_names(map(_waiting, lonely))}")
        todo.append(waiting.advice(lonely) if alive else "start workers, see `workers`")
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
    found = waiting.amounts(queue)
    if queue.waiting_seconds is not None:
        found.insert(1, f"the oldest for {show_age(queue.waiting_seconds)}")
    return f"{queue.actor} ({', '.join(found)})"


def _blocked(queue: ActorQueue) -> str:
    return f"{queue.actor} (for {show_age(queue.blocked_seconds)}, {queue.tasks:,} waiting)"
