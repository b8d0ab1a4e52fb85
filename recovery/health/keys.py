"""Check of what others have put into Redis where queues are."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Cause, Check, Level, join_names, ok
from recovery.health.scanners import NUDGES

ADVICE = "find out who put it there; it is to use another name, or another database of Redis. Then rename or delete it"


def keys(resources: Resources) -> Check:
    """Nothing else stands in the place of a queue, or was set aside by workers for that and not seen to since."""
    store, broker = resources.store, resources.broker
    names = {*store.waiting.by_actor(count_served=False), *store.queues.all(), NUDGES}
    others, aside = broker.not_queues(sorted(names)), broker.set_aside()
    found = []
    if others:
        found.append(f"not a queue: {join_names(f'{name} is a {kind}' for name, kind in others.items())}")
    if aside:
        found.append(f"set aside by workers: {join_names(aside)}")
    if not found:
        unsaid = "; what was set aside is not known: this user may not list keys, or they are too many"
        return ok("keys", f"no other key has the name of a queue{'' if aside is not None else unsaid}")
    # Workers set it aside with the next poll; where none polls, a message that is pushed is refused.
    level = Level.PROBLEM if others else Level.WARNING
    return Check("keys", level, Cause.KEYS_IN_THE_WAY, "; ".join(found), ADVICE)
