"""Celery's Redis transport as workers have it. What is taken goes through an intake (`taking`), and five things differ
from kombu's own.

A channel whose connection was closed says that it lost the connection. There kombu's raises AttributeError, which no
layer above takes for a lost connection, and the worker ends. It comes to that where an attempt ends that was begun
before Redis went away, just when Redis goes away again.

A channel tells which of its polls were answered (`polls`).

The event loop is not woken up each second for what has no use here.

A server that takes no messages, since it is a replica, counts as one that does not answer. kombu's would connect, fail
with the first message, and connect again, several times a second.

A connection is tried again every few seconds, for as long as Redis is away. kombu's waits ever longer, up to half a
minute, and would be at work as much later.
"""

from __future__ import annotations

from queue import Empty
from typing import Any

from celery.app.amqp import AMQP
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES, redis

from recovery.queue.condition import introduce
from recovery.worker.messages.polls import POLLS
from recovery.worker.messages.taking import TakingChannel

PAUSE = 4.0
"""Seconds between two tries to connect, at most. A try itself may take three (`recovery.queue.connection`)."""

STEP = 0.1
"""Seconds by which each is longer than the one before, from one on: Redis may be back at once, or not for hours."""


REPLICAS = ("replica", "slave")


class Channel(TakingChannel):
    """A channel of this transport."""

    _asked: tuple[str, ...] = ()

    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis was closed; another one is made")
        return super()._connparams(asynchronous)

    def _brpop_start(self, timeout: float | None = None) -> None:
        super()._brpop_start(timeout)
        self._asked = tuple(self.active_queues)
        POLLS.asked(self, self._asked)

    def _brpop_read(self, **options: Any) -> Any:
        try:
            delivered = super()._brpop_read(**options)
        except Empty:
            POLLS.answered(self._asked)
            raise
        POLLS.answered(self._asked)
        return delivered


class Transport(redis.Transport):  # type: ignore[misc]
    """What addresses of Redis stand for, once it is installed."""

    Channel = Channel

    def establish_connection(self) -> Any:
        connection = super().establish_connection()
        channel = self._avail_channels[-1]  # made to see whether the server answers
        if introduce(channel.client).get("role") in REPLICAS:
            self.close_connection(connection)
            raise ConnectionError("it is a replica, which takes no messages: RECOVERY_BROKER_URL must name its primary")
        return connection

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        super().register_with_event_loop(connection, loop)
        # kombu's timer keeps the tables of remote control, which nobody here asks (`TakingChannel._lookup`).
        refreshing = getattr(self.cycle, "_binding_expiry_tref", None)
        if self.Channel.intake is not None and refreshing is not None:
            refreshing.cancel()


class TryingConnection(Connection):  # type: ignore[misc]
    """Connects again soon after Redis is back."""

    def _ensure_connection(
        self,
        errback: Any = None,
        max_retries: int | None = None,
        interval_start: float = 1,
        interval_step: float = STEP,
        interval_max: float = PAUSE,
        **options: Any,
    ) -> Any:
        pauses = interval_start, min(interval_step, STEP), min(interval_max, PAUSE)
        return super()._ensure_connection(errback, max_retries, *pauses, **options)


class Messaging(AMQP):  # type: ignore[misc]
    """How a Celery application of ours connects."""

    Connection = TryingConnection


def install() -> None:
    """Take the place of kombu's own in this process. Before the first connection."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
