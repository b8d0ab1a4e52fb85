"""What a setting that was changed does not reach by itself, and what is to be done about that. All others are read
whenever something is decided by them, and deadlines that they make too late are moved."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator

from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.wording import show_duration

OF_ATTEMPTS = ("worker_timeout", "accept_first", "idempotent", "auto_heartbeat", "retry")
"""What an attempt takes with it when it begins, and all of `retry_…`."""
_RETRY = "retry_"


def not_reached(effective: ActorPreferences | ProcessTypePreferences, changed: Collection[str]) -> list[str]:
    """A sentence for each kind of thing that goes on as it was, now that these settings were changed."""
    told = _of_attempts(changed) if isinstance(effective, ActorPreferences) else _of_processes(effective, changed)
    return [*told, *_of_retries(changed)]


def _of_attempts(changed: Collection[str]) -> Iterator[str]:
    if names := [name for name in changed if name in OF_ATTEMPTS or name.startswith(_RETRY)]:
        yield f"attempts that run keep the {', '.join(names)} that they began with"


def _of_processes(effective: ProcessTypePreferences, changed: Collection[str]) -> Iterator[str]:
    if "idle_timeout" in changed:
        words = f"type:{effective.id}", "--idle-timeout", show_duration(effective.idle_timeout)
        yield (
            "processes that were started already keep the idle_timeout that they have; "
            f"`recovery operation start set_idle_timeout {shlex.join(words)} --reason …` gives it to them"
        )


def _of_retries(changed: Collection[str]) -> Iterator[str]:
    if any(name.startswith(_RETRY) for name in changed):
        yield "tasks that wait for a retry wait as long as they were to"
