"""The controls of a worker other than SIGTERM: a few commands of Celery's remote control, and SIGHUP.

Operators' commands notify workers by remote control that settings in MongoDB have changed. A worker that misses the
notice reads the settings with its next heartbeat. This happens if Redis was away, if the worker was just connecting, or
if remote control or `events` are off.

A worker or beat ignores SIGHUP, unless its terminal was closed: then SIGHUP ends a worker as SIGTERM does. Celery
itself would restart the program with a command that does not work, and the worker would be gone. To use new code or
settings, end the worker and start it again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from celery.apps import worker as celery_worker
from celery.worker.control import Panel, control_command

from recovery.queue import LIVES, SETTINGS_CHANGED
from recovery.worker.celery_tasks import Running

COMMANDS = frozenset({SETTINGS_CHANGED, LIVES, "ping"})
"""All commands that a worker obeys. With Celery's other commands anybody who reaches Redis could end workers, cancel
their queues, or make them run code. `ping` shows `celery inspect ping` and health checks that the main loop answers."""
IGNORED = "SIGHUP is ignored: to use new code or settings, end this worker with SIGTERM and start it again"


def register_commands() -> None:
    """Register these commands with the workers of this process, and remove all others."""
    control_command(name=SETTINGS_CHANGED)(settings_changed)
    control_command(name=LIVES)(database)
    for registry in (Panel.data, Panel.meta):
        for name in registry.keys() - COMMANDS:
            del registry[name]


def database(_state: Any) -> str | None:
    """Return the name of this worker's database, for a caller that asks which workers live."""
    return Running.parts.lifeline.database_name if Running.parts is not None else None


def settings_changed(_state: Any) -> None:
    """Read again the settings of actors and process types, and which actors are blocked. Runs on the worker's event
    loop, so it only wakes other threads."""
    if Running.parts is not None:
        Running.parts.lifeline.settings_changed()


def keep_hangup_from_celery() -> None:
    """Keep Celery from handling SIGHUP in workers of this process."""
    celery_worker.install_worker_restart_handler = lambda *_args, **_options: None


def handle_hangup() -> None:
    """Handle SIGHUP in this process from now on. Do nothing outside the main thread, where tests run workers."""
    if threading.current_thread() is not threading.main_thread():
        return
    is_terminal = sys.stdout is not None and sys.stdout.isatty()

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        if is_terminal:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            celery_worker.safe_say(IGNORED)

    signal.signal(signal.SIGHUP, on_hangup)


def handle_hangup_in_beat(**_: Any) -> None:
    """Handle SIGHUP in a beat. For the signal `beat_init`."""
    handle_hangup()
