"""What a worker obeys from outside beside SIGTERM: a few commands of Celery's remote control, and SIGHUP.

By remote control operators' commands tell workers that there are new settings, which stand in MongoDB. A worker that is
not told (Redis was away, it was just connecting, remote control or `events` are off) learns of it with its next
heartbeat.

A worker or beat ignores SIGHUP, unless its terminal has closed: this ends a worker as SIGTERM does. Celery by itself
would start the program again, by a command that can't be run, and the worker would be gone. To use new code or
settings, start a worker anew.
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
"""All that a worker obeys. By its others Celery lets whoever reaches Redis end workers, take away their queues, or have
them run code that is theirs; `ping` tells that the main loop answers, to `celery inspect ping` and health checks."""
IGNORED = "SIGHUP is ignored: to take up new code or settings, end this worker by SIGTERM and start it again"


def register_commands() -> None:
    """Have the workers of this process answer these commands, and no others."""
    control_command(name=SETTINGS_CHANGED)(settings_changed)
    control_command(name=LIVES)(database)
    for known in (Panel.data, Panel.meta):
        for name in known.keys() - COMMANDS:
            del known[name]


def database(_state: Any) -> str | None:
    """Return the database on which this worker works, for a caller that asks which workers are there."""
    return Running.parts.lifeline.database_name if Running.parts is not None else None


def settings_changed(_state: Any) -> None:
    """Read again the settings of actors and process types, and which are blocked. Runs on the worker's event loop, so
    it only wakes others."""
    if Running.parts is not None:
        Running.parts.lifeline.settings_changed()


def keep_hangup_from_celery() -> None:
    """Keep Celery from handling SIGHUP in workers of this program."""
    celery_worker.install_worker_restart_handler = lambda *_args, **_options: None


def handle_hangup() -> None:
    """Handle SIGHUP in this process from here on. Does nothing outside the main thread, where tests have workers."""
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
