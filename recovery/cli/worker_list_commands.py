"""`recovery workers`: who works, with which version of the application, and whether all is well there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recovery.cli.command_options import Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.output import console, line, print_json, print_rows, seconds_between, utc
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.text import Text

    from recovery.health.versions import LiveVersion
    from recovery.records import Worker

HELP = """List the workers: the version of the application that each runs, its queues, its heartbeat and its slots.

The newest version of an application is that of its live worker that registered last. A worker whose heartbeat is
overdue is listed until others have requeued what it held.

Example: [bold]recovery workers --json[/bold]
"""
HEADERS = ("name", "host", "application", "version", "queues", "since", "heartbeat", "slots")
QUEUES_SHOWN = 5

commands = Commands()


@commands.add(HELP)
def workers(json: JsonOption = False) -> None:
    from recovery.health.live_workers import START
    from recovery.health.versions import live_versions

    store = connect(needs_redis=False).store
    found, now = sorted(store.workers.all(), key=lambda one: (one.name, one.id)), store.now()
    versions = live_versions(one for one in found if is_alive(one, now))
    if json:
        print_json("workers", as_dict(found, versions, now))
        return
    if not found:
        console().print(f"no worker is registered: {START}")
        return
    print_rows(console(), HEADERS, (_row(one, versions, now) for one in found))
    for text in _summary(versions):
        console().print(text, style="dim")


def is_alive(worker: Worker, now: datetime) -> bool:
    """Return whether a worker's heartbeat is not overdue."""
    return worker.recovery_time is not None and worker.recovery_time > now


def as_dict(found: Sequence[Worker], versions: Sequence[LiveVersion], now: datetime) -> dict[str, Any]:
    """Return workers and versions as JSON has them."""
    return {
        "workers": [
            {
                "id": one.id,
                "name": one.name,
                "host": _host(one),
                "pid": one.pid,
                "application": one.application,
                "application_version": one.application_version,
                "compatible_with": list(one.compatible_with),
                "library_version": one.version,
                "queues": list(one.queues),
                "paused": list(one.paused),
                "registered_at": one.started_at,
                "alive": is_alive(one, now),
                "heartbeat_due_at": one.recovery_time,
                "hung": [{"actor": slot.actor, "task": slot.task, "since": slot.since} for slot in one.hung],
                "failing": one.failing.in_a_row if one.failing is not None else 0,
                "failing_reason": one.failing.reason if one.failing is not None else None,
            }
            for one in found
        ],
        "versions": [
            {
                "application": one.application,
                "application_version": one.version,
                "workers": list(one.workers),
                "registered_at": one.registered_at,
                "newest": one.is_newest,
            }
            for one in versions
        ],
    }


def _host(worker: Worker) -> str | None:
    """Return the machine that the worker's name has. The record's own `host` is for programs."""
    _, at, host = worker.name.rpartition("@")
    return host if at else None


def _row(worker: Worker, versions: Sequence[LiveVersion], now: datetime) -> list[str | Text]:
    newest = {(one.application, one.version) for one in versions if one.is_newest}
    several = sum(one.application == worker.application for one in versions) > 1
    mark = " (newest)" if several and (worker.application, worker.application_version) in newest else ""
    also = f", compatible with {', '.join(worker.compatible_with)}" if worker.compatible_with else ""
    if (due := worker.recovery_time) is None:
        heartbeat = line(("deadline missing", "bold red"))
    elif due > now:
        heartbeat = line(f"due in {show_age(seconds_between(now, due))}")
    else:
        heartbeat = line((f"overdue for {show_age(seconds_between(due, now))}", "bold red"))
    return [
        worker.name,
        _host(worker) or "",
        worker.application or "",
        f"{worker.application_version or 'not recorded'}{mark}{also}",
        _queues(worker),
        utc(worker.started_at),
        heartbeat,
        line((_slots(worker), "bold red")),
    ]


def _queues(worker: Worker) -> str:
    shown = [f"{name} (paused)" if name in worker.paused else name for name in sorted(worker.queues)]
    more = len(shown) - QUEUES_SHOWN
    return ", ".join([*shown[:QUEUES_SHOWN], *([f"{more} more"] if more > 0 else [])])


def _slots(worker: Worker) -> str:
    found = []
    if worker.hung:
        actors = ", ".join(sorted({slot.actor for slot in worker.hung}))
        found.append(f"{count(len(worker.hung), 'slot')} hanging: {actors}")
    if worker.failing is not None:
        found.append(f"{worker.failing.in_a_row} in a row could run no task: {worker.failing.reason}")
    return "; ".join(found)


def _summary(versions: Sequence[LiveVersion]) -> Iterator[str]:
    """Yield a line for each application that lives in several versions."""
    for newest in (one for one in versions if one.is_newest):
        others = [one for one in versions if one.application == newest.application and one is not newest]
        if others:
            older = ", ".join(f"{one.version or 'not recorded'} ({len(one.workers)})" for one in others)
            yield (
                f"{newest.application or 'workers without an application'}: newest version "
                f"{newest.version or 'not recorded'} ({len(newest.workers)}); older: {older}"
            )
