"""What operators' commands tell workers at once, by Celery's remote control: that there are new settings.

What they are stands in MongoDB. A worker that is not told (Redis was away, it was just connecting, remote control or
`events` are off) learns of it with its next heartbeat.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import control_command

from recovery.queue import SETTINGS_CHANGED
from workers.tasks import Running


def register() -> None:
    """Have the workers of this process answer these commands."""
    control_command(name=SETTINGS_CHANGED)(settings_changed)


def settings_changed(_state: Any) -> None:
    """Read the settings of actors and process types, and which are blocked. On the worker's event loop: it only asks
    others to."""
    if Running.lifeline is not None:
        Running.lifeline.settings_changed()
