"""The connection of a command to the servers: checked before the command begins, and what the command counted is left
in MongoDB at its end.

A command ends too soon to be scraped, so a worker takes up what it left.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from recovery.errors import ServerUnavailable
from recovery.metrics_folder import MULTIPROC_DIR
from recovery.settings import Settings, load

if TYPE_CHECKING:  # a command that asks nothing of the servers does without their drivers
    from recovery.engine import Resources
    from recovery.metrics.carried_counts import Counted

TIME_LIMIT = 2.0
"""Seconds to leave what was counted. It is not what the operator waits for."""

_LOCAL = re.compile(r"(?:mongodb|redis)://(?:127\.0\.0\.1|localhost):(\d+)(?:/.*)?")

ANSWER_TIMEOUT = 3.0
"""Seconds that a server has to answer a command; one that is only slow answers in one."""

_connected: list[tuple[Resources, Counted]] = []


def connect(settings: Settings | None = None, *, needs_redis: bool = True) -> Resources:
    """Return connections to servers that were found to answer. Redis is only asked if the command `needs_redis`.
    Raises ServerUnavailable."""
    from recovery.engine import Resources
    from recovery.store import check_server, wait_for_no_monitor

    settings = settings or load()
    wait_for_no_monitor()
    try:
        check_server(settings.mongo_uri, timeout=ANSWER_TIMEOUT)
        resources = Resources.connect(settings)
        if needs_redis:
            resources.broker.check()
    except ServerUnavailable as error:
        if command := _up(settings):
            error.add_note(f"With these settings: `{command}`")
        raise
    begin(resources)
    return resources


def _up(settings: Settings) -> str | None:
    """Return the `recovery up` that starts servers on these ports of this machine. Return None for servers elsewhere,
    and for the default ports."""
    found = [_LOCAL.fullmatch(address) for address in (settings.mongo_uri, settings.broker_url)]
    ports = [one[1] for one in found if one]
    if len(ports) < 2 or ports == ["27017", "6379"]:
        return None
    return f"recovery up --mongo-port {ports[0]} --redis-port {ports[1]}"


def begin(resources: Resources) -> None:
    """Remember what was counted so far, and the servers that `leave` leaves the rest with."""
    if not _connected:
        _connected.append((resources, _counted()))


def _counted() -> Counted:
    """Return what was counted so far: nothing, if the metrics were never imported, as in most commands."""
    if not _counts():
        return {}
    from recovery.metrics.carried_counts import counted

    return counted()


def _counts() -> bool:
    """Whether anything in this process counts."""
    return "recovery.metrics.registry" in sys.modules


def count_in_memory() -> None:
    """Have this command write no files of what it counts, though the environment names a folder for them: `leave` has
    it counted, and the folder may not be there."""
    if MULTIPROC_DIR in os.environ and "prometheus_client" not in sys.modules:
        from prometheus_client import values

        values.ValueClass = values.MutexValue


def leave_nothing() -> None:
    """Have `leave` leave nothing, because this process serves what it counts as its own metrics."""
    _connected.clear()


def leave() -> None:
    """Leave what was counted since in MongoDB. Does not raise if MongoDB does not take it: then counts are missing."""
    if not _connected:
        return
    resources, before = _connected.pop()
    if not _counts():
        return
    from recovery.metrics import carried_counts

    carried_counts.leave(resources.store, before, TIME_LIMIT)
