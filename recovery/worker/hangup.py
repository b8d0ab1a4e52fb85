"""SIGHUP: a worker or beat ignores it, unless its terminal has closed, which ends a worker as SIGTERM does.

Celery by itself would start the program again, by a command that can't be run: the worker would be gone. Who wants new
code or settings starts a worker anew.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from celery.apps import worker as celery_worker

IGNORED = "SIGHUP is ignored: to take up new code or settings, end this worker by SIGTERM and start it again"


def install() -> None:
    """Keep Celery from handling SIGHUP in workers of this program."""
    celery_worker.install_worker_restart_handler = lambda *_args, **_options: None


def handle() -> None:
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


def handle_in_beat(**_: Any) -> None:
    """The same in a beat. For the signal `beat_init`."""
    handle()
