"""Celery's remote control, as far as it goes here: operators' commands tell workers that there are new settings.

What they are stands in MongoDB. A worker that is not told (Redis was away, it was just connecting, remote control or
`events` are off) learns of it with its next heartbeat.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import Panel, control_command

from recovery.queue import LIVES, SETTINGS_CHANGED
from recovery.worker.celery_tasks import Running

COMMANDS = frozenset({SETTINGS_CHANGED, LIVES, "ping"})
"""All that a worker obeys. By its others Celery lets whoever reaches Redis end workers, take away their queues, or have
them run code that is theirs; `ping` tells that the main loop answers, to `celery inspect ping` and health checks."""


def register() -> None:
    """Have the workers of this process answer these commands, and no others."""
    control_command(name=SETTINGS_CHANGED)(settings_changed)
    control_command(name=LIVES)(database)
    for known in (Panel.data, Panel.meta):
        for name in known.keys() - COMMANDS:
            del known[name]


def database(_state: Any) -> str | None:
    """Tell on which database this worker works, to who asks which workers are there."""
    return Running.lifeline.database_name if Running.lifeline is not None else None


def settings_changed(_state: Any) -> None:
    """Read the settings of actors and process types, and which are blocked. On the worker's event loop: it only asks
    others to."""
    if Running.lifeline is not None:
        Running.lifeline.settings_changed()
