"""Celery's remote control: telling all workers something at once, and asking one whether it answers. What is told is a
hint: whoever does not hear it learns of it later."""

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
"""The control command: settings of actors or process types have changed, or which actors are blocked."""

LIVES = "recovery_lives"
"""The control command that a worker answers with the name of its database. Other workers at the same Redis, of another
cluster or product, do not, or with another name."""

_AT_ONCE = {"max_retries": 1, "interval_start": 0.0, "interval_step": 0.0}
"""kombu's options of a connection: made again once, at once. By its own it would be tried for six seconds, which a
`recovery doctor` that asks about an outage of Redis would take longer."""

TELL_TIMEOUT = 2.0
"""Seconds that it may take; an operator's command waits for it."""


def tell_workers(url: str, command: str) -> bool:
    """Send a control command to all workers at this Redis: whether it was sent in time. Does not raise."""
    sent = threading.Event()

    def send() -> None:
        try:
            with _control(url) as (control, connection):
                control.broadcast(command, connection=connection)
            sent.set()
        except (BrokerError, RedisError, OSError) as error:
            log.warning("workers not told (%s)", error)

    # Each answer has its time, and kombu asks for several and tries again.
    sending = threading.Thread(target=send, name="tell workers", daemon=True)
    if not try_start(sending):  # the change that workers are told of is saved
        return False
    sending.join(TELL_TIMEOUT)
    return sent.is_set()


def answering(url: str, database: str, timeout: float) -> list[str]:
    """Names, as `name@host`, of all workers on this database whose main loop answers within `timeout` seconds; waits
    for so long. Raises what its driver does."""
    with _control(url) as (control, connection):
        answers = control.broadcast(LIVES, reply=True, timeout=timeout, connection=connection) or ()
        return [name for answer in answers for name, its in answer.items() if its == database]


def answers(url: str, worker: str, timeout: float) -> bool:
    """Whether the main loop of a worker, `name@host`, answers in time. Raises what its driver does."""
    with _control(url) as (control, connection):
        return bool(control.ping([worker], timeout=timeout, connection=connection))


@contextmanager
def _control(url: str) -> Iterator[tuple[Control, Any]]:
    """Remote control over a connection of its own: of those that Celery keeps for all of a program some may have died
    since. kombu's errors are raised as ours."""
    with OwnCelery(set_as_current=False) as app:
        app.conf.update(celery_settings(url))
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_AT_ONCE}
        app.control.mailbox.producer_pool = None
        try:
            with app.connection() as connection:
                yield app.control, connection
        except KombuError as error:
            raise ours(error) from error
