"""A worker that starts while a server is away waits for it: a whole cluster that starts at once has no order, and a
failover is none of the worker's business. What no waiting helps is raised at once. And what a worker has imported it
keeps."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from recovery.engine.resources import Queueing
from recovery.retry import BestEffort, Call
from recovery.retry.catalogues.servers import by_driver
from recovery.retry.in_place import call
from recovery.store import Store
from recovery.store.parts import load_all

START_TIMEOUT = 60.0
"""Seconds. Long enough for a failover and for a server that reads its journal; by then somebody has to be told, and who
runs workers starts them again."""
COLLECT_AFTER = 10_000
"""New objects between two collections of garbage."""
PAUSE = 1.0
TURN = 0.001
"""Seconds."""


def wait_for_servers(step: Callable[[], None], seconds: float = START_TIMEOUT) -> None:
    """Do a step that may run twice, again and again for so long while a server is away; then raise what it raised. A
    thread alone, before it does anything else: no breaker has to keep others back."""
    request = Call("start of this worker", BestEffort(lambda _: PAUSE), idempotent=True, seconds=seconds)
    call(step, request, classified=by_driver)


def keep_what_is_imported() -> None:
    """Have the garbage collector look no more at what is there by now, which stays: a sixth of what a scanner takes of
    a CPU. And a pool's processes share those pages with their parent, where a look at them would copy them. What comes
    from now on is looked at more often than in a command, which ends soon."""
    for owner in (Store, Queueing):
        load_all(owner)
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def take_short_turns() -> None:
    """Have a thread that computes give the interpreter after a millisecond to one that waits for it, not after Python's
    five: of a scanner's threads three compute while the fourth only has to send the next update, for which the database
    waits."""
    sys.setswitchinterval(TURN)
