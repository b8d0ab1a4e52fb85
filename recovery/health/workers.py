"""Checks of who works: workers, and the queues that they consume."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Check, among, ok, problem, warning
from recovery.store.overview import Overview


def workers(resources: Resources) -> Check:
    """Somebody lives, and none is silent for long."""
    store = resources.store
    alive = Overview(store.database).workers_alive()
    silent = store.workers.overdue(100)
    found = f"{len(alive)} alive{f': {among(worker.name for worker in alive)}' if alive else ''}"
    if silent:
        found += f"; silent: {among(worker.name for worker in silent)}"
    if not alive:
        return problem("workers", found, "start some: `recovery worker`")
    if silent:
        # Others take what a silent one held and remove its record, within a nudge.
        return warning("workers", found, "they are dead or hang; if they stay here, nobody scans: is a beat running?")
    return ok("workers", found)


def actors(resources: Resources) -> Check:
    """Every actor that was ever served is served by a worker that lives; none is blocked."""
    overview = Overview(resources.store.database)
    known, blocked = set(overview.actor_names()), overview.blocked_actors()
    unserved = known - _served(overview)
    if not known:
        return ok("actors", "none known: no worker has ever run here")
    found, advice = [f"{len(known)} known"], []
    if unserved:
        found.append(f"served by nobody: {among(unserved)}")
        advice.append(
            "start a worker of their application; if they are gone for good, take them out of the collection actors"
        )
    if blocked:
        found.append(f"blocked: {among(blocked)}")
        advice.append("their tasks wait until `recovery actor unblock NAME`")
    return warning("actors", "; ".join(found), "; ".join(advice)) if advice else ok("actors", found[0])


def queues(resources: Resources) -> Check:
    """No messages wait in a queue that nobody consumes."""
    overview, store = Overview(resources.store.database), resources.store
    polled = store.queues.all()
    depths = resources.broker.depths(sorted({*overview.actor_names(), *polled}))
    waiting = {name: depth for name, depth in depths.items() if depth}
    found = f"{sum(waiting.values()):,} messages wait in {len(waiting)} of {len(depths)} queues"
    if lonely := waiting.keys() - _served(overview):
        now = store.now()
        names = []
        for name in lonely:
            last = polled[name].polled_at if name in polled else None
            since = f"polled {(now - last).total_seconds():,.0f} s ago" if last else "never polled"
            names.append(f"{name} ({waiting[name]:,}, {since})")
        advice = "start a worker that serves them: `recovery worker --queues …`, or without --queues"
        return problem("queues", f"{found}; nobody consumes {among(names)}", advice)
    return ok("queues", found)


def _served(overview: Overview) -> set[str]:
    return {queue for worker in overview.workers_alive() for queue in worker.queues}
