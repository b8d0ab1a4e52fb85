"""Waiting for a result, and telling meanwhile what it waits for that no worker will take."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import typer

from recovery.durations import show_duration

if TYPE_CHECKING:
    from recovery import Recovery
    from recovery.engine import Resources

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at whether somebody serves what is waited for. The first comes as late: a process that is
served has mostly ended by then. A look costs as many seeks as there are actors."""


INTERRUPTED = 130
"""The exit code of what Ctrl-C ended, as shells have it."""


def goes_on(process_id: str) -> typer.Exit:
    """What to raise when Ctrl-C ends the waiting for a process: it is told that only that ends."""
    return _stopped(f"process {process_id} goes on; `recovery show {process_id}` tells how far it is")


def go_on(processes: str) -> typer.Exit:
    """The same of several processes, as in `3 processes`."""
    return _stopped(f"{processes} started, which go on; `recovery show` tells how far one is")


def _stopped(told: str) -> typer.Exit:
    from recovery.cli.output import messages

    messages().print(f"no longer waiting: {told}", style="yellow")
    return typer.Exit(INTERRUPTED)


def await_result(app: Recovery, process_id: str, seconds: float) -> Any:
    """`app.result`, for so long. What no worker will take is told once, when it is first seen."""
    from recovery.cli.output import messages
    from recovery.errors import ResultTimeout

    deadline = time.monotonic() + seconds
    told = False
    while True:
        left = deadline - time.monotonic()
        last = left <= LOOK_EVERY
        try:
            return app.result(process_id, timeout=max(0.0, left if last else LOOK_EVERY))
        except ResultTimeout:
            if not told and (reasons := _reasons(app.resources, process_id)):
                told = True
                for reason in reasons:
                    messages().print(f"{process_id} waits: {reason}", style="yellow")
            if last:
                raise ResultTimeout(
                    f"process {process_id} has not ended within {show_duration(seconds)}; it goes on"
                ) from None


def _reasons(resources: Resources, process_id: str) -> list[str]:
    from recovery.health import waiting
    from recovery.store.views.overview import time_limit

    try:
        with time_limit(LOOK_EVERY):
            lonely = waiting.reasons(resources.store.waiting.by_actor(count_served=False))
            waited_for = resources.store.pending.actors_of(process_id, lonely) if lonely else set()
    except Exception:  # whatever it is, the result is waited for; a server that is away ends that by itself
        log.debug("who serves %s could not be asked", process_id, exc_info=True)
        return []
    return [lonely[name] for name in sorted(waited_for)]
