"""Waiting for a result, and telling meanwhile what it waits for that no worker will take."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from recovery.wording import show_duration

if TYPE_CHECKING:
    from recovery import Recovery
    from recovery.engine import Resources

Found = TypeVar("Found")

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
    """Return the result of a process, waiting for at most this many seconds.

    Meanwhile report once which tasks no worker will take, and once if no beat nudges, because overdue work then waits
    longer.
    """
    from recovery.cli.output import messages
    from recovery.errors import ResultTimeout
    from recovery.health.beat_and_scanners import missing_beat

    deadline = time.monotonic() + seconds
    told = told_of_beat = False
    while True:
        left = deadline - time.monotonic()
        last = left <= LOOK_EVERY
        try:
            return app.result(process_id, timeout=max(0.0, left if last else LOOK_EVERY))
        except ResultTimeout:
            if not told and (reasons := _ask(_reasons, app.resources, process_id)):
                told = True
                for reason in reasons:
                    messages().print(f"{process_id} waits: {reason}", style="yellow")
            if not told_of_beat and (missing := _ask(missing_beat, app.resources)):
                told_of_beat = True
                messages().print(missing, style="yellow")
            if last:
                raise ResultTimeout(
                    f"process {process_id} has not ended within {show_duration(seconds)}; it goes on"
                ) from None


def _ask(question: Callable[..., Found], *about: Any) -> Found | None:
    """Ask a question of the cluster in a short time; None if that can't be answered now."""
    from recovery.store.views.overview import time_limit

    try:
        with time_limit(LOOK_EVERY):
            return question(*about)
    except Exception:  # whatever it is, the result is waited for; a server that is away ends that by itself
        log.debug("%s could not be asked", question.__name__, exc_info=True)
        return None


def _reasons(resources: Resources, process_id: str) -> list[str]:
    """Return why no worker takes what the process waits for."""
    from recovery.health import untaken_tasks, versions

    store = resources.store
    lonely = untaken_tasks.reasons(store.waiting.by_actor(count_served=False))
    waited_for = store.pending.actors_of(process_id, lonely) if lonely else set()
    # By itself: until `recovery init` has made its index, the other reasons are reported all the same.
    refused_tasks = _ask(store.refusals.of_process, process_id) or []
    pinned = versions.pinned_in_vain(resources, refused_tasks)
    refused = {f"{one.actor} {pinned.get(one.id) or untaken_tasks.why_refused(one)}" for one in refused_tasks}
    return [*(lonely[name] for name in sorted(waited_for)), *sorted(refused)]
