"""Celery's remote control: notify all workers at once, and ask one worker whether it answers.

A notice is a hint: a worker that misses it learns of the change later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.app.control import Control
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from recovery.errors import BrokerError
from recovery.queue.celery_app import OwnCelery
from recovery.queue.redis_connection import celery_settings, ours
from recovery.threads import try_start

log = logging.getLogger(__name__)

SETTINGS_CHANGED = "recovery_settings_changed"
"""The control command for: settings of actors or process types have changed, or which actors are blocked."""

LIVES = "recovery_lives"
"""The control command that a worker answers with the name of its database. Workers of another cluster or product at the
same Redis do not answer, or answer with another name."""

_AT_ONCE = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.0}
"""kombu's connection options: retry a connection once, without a pause. By default kombu would try for six seconds,
which would delay a `recovery doctor` during an outage of Redis."""

TELL_TIMEOUT = 2.0
"""Maximum seconds that `tell_workers` takes. An operator's command waits for it."""


def tell_workers(url: str, command: str) -> bool:
    """Send a control command to all workers at this Redis. Return whether it was sent within TELL_TIMEOUT. Do not
    raise."""
    sent = threading.Event()

    def send() -> None:
        try:
            with _control(url) as (control, connection):
                control.broadcast(command, connection=connection)
            sent.set()
        except (BrokerError, RedisError, OSError) as error:
            log.warning("could not notify workers (%s)", error)

    # In a thread, because each answer has its own time limit, and kombu waits for several answers and retries.
    sending = threading.Thread(target=send, name="tell workers", daemon=True)
    if not try_start(sending):  # the change itself is saved already
        return False
    sending.join(TELL_TIMEOUT)
    return sent.is_set()


def answering(url: str, database: str, timeout: float) -> list[str]:
    """Return the names, as `name@host`, of all workers on this database whose main loop answers within `timeout`
    seconds.

    Always waits for `timeout` seconds. Raises the driver's errors.
    """
    with _control(url) as (control, connection):
        answers = control.broadcast(LIVES, reply=True, timeout=timeout, connection=connection) or ()
        return [name for answer in answers for name, worker_database in answer.items() if worker_database == database]


def answers(url: str, worker: str, timeout: float) -> bool:
    """Return whether the main loop of the worker `name@host` answers within `timeout` seconds. Raises the driver's
    errors."""
    with _control(url) as (control, connection):
        return bool(control.ping([worker], timeout=timeout, connection=connection))


@contextmanager
def _control(url: str) -> Iterator[tuple[Control, Any]]:
    """Yield remote control over a new connection, because pooled connections of Celery may have died. Raises kombu's
    errors as BrokerError."""
    with OwnCelery(set_as_current=False) as app:
        app.conf.update(celery_settings(url))
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_AT_ONCE}
        app.control.mailbox.producer_pool = None
        try:
            with app.connection() as connection:
                yield app.control, connection
        except KombuError as error:
            raise ours(error) from error
