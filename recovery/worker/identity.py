"""The identity of a worker: an id that is new at every start, and the facts by which another worker on the same host
can see that it is gone."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from recovery.installed import library_version
from recovery.records import Worker

_PROC = Path("/proc")
ENDED = "ZX"
"""States in which a process has ended: zombie, or dead."""


def identify(
    name: str,
    queues: tuple[str, ...],
    *,
    application: str | None = None,
    application_version: str | None = None,
    compatible_with: Iterable[str] = (),
    spark: bool = False,
    drill_kill: bool = False,
) -> Worker:
    """Return the record of the worker whose parent process this is.

    Args:
        name: The worker's name, `name@host`.
        queues: The queues of actors that it serves.
        application: The name of the application that it serves.
        application_version: The version of that application.
        compatible_with: Other versions whose tasks it accepts.
        spark: Whether it drives Spark.
        drill_kill: Whether a drill may kill it.
    """
    pid = os.getpid()
    return Worker(
        id=f"{name}:{uuid.uuid4().hex[:12]}",
        name=name,
        host=host(),
        pid=pid,
        pid_started=_own_start(pid),
        queues=queues,
        spark=spark or None,
        version=library_version(),
        application=application,
        application_version=application_version,
        compatible_with=tuple(sorted(compatible_with)),
        drill_kill=drill_kill or None,
    )


@cache
def host() -> str:
    """Return an id of this kernel and process namespace, within which a process id means the same process; empty if it
    can't be read. Cached, because no process moves to another kernel or namespace."""
    try:
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot_id}/{namespace}"


def is_gone(worker: Worker) -> bool:
    """Return whether a worker's parent process has certainly ended, by process id and start time on this host.

    A zombie counts as gone. The result is False if the worker runs on another host, or if /proc is hidden.
    """
    if not worker.host or worker.host != host() or not worker.pid_started:
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # the process id belongs to a process of another user
    try:
        return started(worker.pid) != worker.pid_started
    except OSError:
        return False


class ProcessStat(NamedTuple):
    """The state of a process, from /proc."""

    state: str
    parent: int
    started: int
    """Start time in clock ticks since boot. Together with the process id it identifies one process for ever."""


def process_stat(pid: int) -> ProcessStat:
    """Return the state of a process. Raises OSError if it is gone and was waited for, or if /proc is hidden."""
    # The name in brackets may contain anything, so the fields are counted from the last bracket.
    fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), int(fields[19]))


def started(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it has ended. Raises OSError if /proc is
    hidden."""
    stat = process_stat(pid)
    return None if stat.state in ENDED else stat.started


def _own_start(pid: int) -> int:
    try:
        return started(pid) or 0
    except OSError:
        return 0
