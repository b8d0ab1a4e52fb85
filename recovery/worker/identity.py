"""Who this worker is: an id that is new at every start, and what lets another on the same host see it gone."""

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
"""States of a process that has ended: a zombie, or dead."""


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
    """Return the record of the worker whose parent process this is, and which serves this application. `drill_kill`:
    whether a drill may kill it."""
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
    """Return an id of this kernel and process namespace, within which a pid means the same process; empty if that can't
    be read. Read once, because no process moves to another one."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot}/{namespace}"


def is_gone(worker: Worker) -> bool:
    """Whether a worker's parent process has ended for certain: seen on its own host, by pid and start time.

    A zombie counts as gone. False where it can't be told: on another host, or where /proc is hidden from us.
    """
    if not worker.host or worker.host != host() or not worker.pid_started:
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's process
    try:
        return started(worker.pid) != worker.pid_started
    except OSError:
        return False


class ProcessStat(NamedTuple):
    """What /proc tells of a process."""

    state: str
    parent: int
    started: int
    """In clock ticks since boot; with the pid, it names one process for ever."""


def process_stat(pid: int) -> ProcessStat:
    """Read what /proc tells of a process. Raises OSError if it is gone and waited for, or if /proc is hidden."""
    # The name in brackets may hold anything, so the fields are counted from the last bracket.
    fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), int(fields[19]))


def started(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if it has ended. Raises OSError if /proc is
    hidden."""
    stat = process_stat(pid)
    return None if stat.state in ENDED else stat.started


def _own_start(pid: int) -> int:
    try:
        return started(pid) or 0
    except OSError:
        return 0
