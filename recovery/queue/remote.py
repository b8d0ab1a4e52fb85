"""Celery's remote control: telling all workers something at once, and asking one whether it answers. What is told is a
hint: whoever does not hear it learns of it later."""

from __future__ import annotations

import logging
import threading

from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from recovery.queue.connection import celery_settings
from recovery.threads import try_start

log = logging.getLogger(__name__)

SETTINGS_CHANGED = "recovery_settings_changed"
"""The control command: settings of actors or process types have changed, or which actors are blocked."""

TELL_TIMEOUT = 2.0
"""Seconds that it may take; an operator's command waits for it."""


def tell_workers(url: str, command: str) -> bool:
    """Send a control command to all workers at this Redis: whether it was sent in time. Does not raise."""
    sent = threading.Event()

    def send() -> None:
        try:
            with Celery(set_as_current=False) as app:
                app.conf.update(celery_settings(url))
                app.control.broadcast(command)
            sent.set()
        except (KombuError, RedisError, OSError) as error:
            log.warning("workers not told (%s)", error)

    # Each answer has its time, and kombu asks for several and tries again.
    sending = threading.Thread(target=send, name="tell workers", daemon=True)
    if not try_start(sending):  # the change that workers are told of is saved
        return False
    sending.join(TELL_TIMEOUT)
    return sent.is_set()


def answering(url: str, timeout: float) -> list[str]:
    """Names, as `name@host`, of all workers whose main loop answers within `timeout` seconds; waits for so long. Raises
    what its driver does."""
    with Celery(set_as_current=False) as app:
        app.conf.update(celery_settings(url))
        return [name for answer in app.control.ping(timeout=timeout) or () for name in answer]


def answers(url: str, worker: str, timeout: float) -> bool:
    """Whether the main loop of a worker, `name@host`, answers in time. Raises what its driver does."""
    with Celery(set_as_current=False) as app:
        app.conf.update(celery_settings(url))
        return bool(app.control.ping([worker], timeout=timeout))
