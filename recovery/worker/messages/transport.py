"""Celery's Redis transport for workers: a `MessageIntake` checks everything from Redis before kombu reads it.

kombu keeps taken but unacknowledged messages in Redis too (`unacked`), and restores them when it ends or after an hour.
That takes two round trips per message, and lets a message that kills a worker kill the next worker. Here these messages
are kept in memory only. A message that a killed worker had taken is queued in MongoDB, and is found as MESSAGE_LOST or
by its claim's deadline. A worker that ends in order puts messages that it has not begun back into their queues.

Other differences from kombu's transport:

- A channel whose connection was closed raises ConnectionError. kombu's raises AttributeError, which no layer above
  treats as a lost connection, so the worker ends. This happens if an attempt that began before Redis went away ends
  just when Redis goes away again.
- A channel reports which of its polls were answered (`queue_consumption.Polls`).
- The event loop does not wake up each second to refresh tables that nobody reads here.
- A replica, which takes no messages, counts as a server that does not answer. kombu would connect, fail with the first
  message, and connect again, several times a second.
- A connection is retried every few seconds for as long as Redis is away. kombu backs off up to half a minute, and would
  resume that much later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from queue import Empty
from typing import Any, ClassVar

from celery.app.amqp import AMQP
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES, redis, virtual
from kombu.utils.encoding import bytes_to_str

from recovery.queue.redis_condition import introduce
from recovery.queue.redis_connection import BoundedParser, RedisError, ResponseError
from recovery.queue.untrusted import set_aside
from recovery.worker.messages.intake import MessageIntake
from recovery.worker.messages.queue_consumption import POLLS

log = logging.getLogger(__name__)

PAUSE = 4.0
"""Maximum seconds between two tries to connect. A try itself may take three seconds
(`recovery.queue.redis_connection`)."""

STEP = 0.1
"""Seconds by which each pause is longer than the one before, from 1 s on: Redis may be back at once, or not for hours.
"""


REPLICAS = ("replica", "slave")

TOLD = (
    "%s in Redis held a %s that is none of ours, and was renamed to %s: have its program use another name, or another "
    "database of Redis; then rename or delete it"
)


class InMemory(virtual.QoS):  # type: ignore[misc]
    """The taken messages that are not yet acknowledged."""

    def restore_unacked(self) -> list[Any]:
        """Put these messages back. Messages that can't be put back are found in MongoDB. Return none of them to kombu,
        which would write them to a file."""
        self._flush()
        for message in reversed(self._delivered.values()):  # in reverse, so that the first of them is the next again
            try:
                self.channel._restore(message)
            except (RedisError, OSError) as error:
                log.warning(
                    "could not put back %d messages (%s); they will be requeued as lost", len(self._delivered), error
                )
                break
        self._delivered.clear()
        return []


class Channel(redis.Channel):  # type: ignore[misc]
    """A channel that delivers the messages that `intake` makes. Without an intake, in a process that is not a worker,
    it takes messages as kombu's own channel does."""

    QoS = InMemory
    intake: ClassVar[MessageIntake | None] = None
    _polled_queues: tuple[str, ...] = ()
    """The queues of the poll in progress."""

    def _brpop_start(self, timeout: float | None = None) -> None:
        super()._brpop_start(timeout)
        self._polled_queues = tuple(self.active_queues)
        POLLS.asked(self, self._polled_queues)

    def _brpop_read(self, **options: Any) -> bool:
        try:
            delivered = super()._brpop_read(**options) if self.intake is None else self._take(self.intake, options)
        except Empty:
            POLLS.answered(self._polled_queues)
            raise
        POLLS.answered(self._polled_queues)
        return bool(delivered)

    def _take(self, intake: MessageIntake, options: Mapping[str, Any]) -> bool:
        """Read the answer to a poll. Raises Empty if it contains no message, or an error of the connection."""
        try:
            try:
                popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            except ResponseError as error:
                self._set_aside_non_queues(error, self.active_queues)
                raise Empty from None
            if not popped:
                raise Empty
            queue = bytes_to_str(popped[0]).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            if queue not in self.active_queues:  # not consumed any more: the consumption changed after the poll
                self.client.rpush(queue, popped[1])
                return True
            message = intake.take(queue, popped[1])
            if message is not None:
                self.connection._deliver(message, queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _size(self, queue: str) -> int:
        try:
            return int(super()._size(queue))
        except ResponseError as error:
            self._set_aside_non_queues(error, [queue])
            return 0

    def _queue_bind(self, exchange: str, *binding: str) -> None:
        try:
            super()._queue_bind(exchange, *binding)
        except ResponseError as error:
            tables = self.keyprefix_queue, self.keyprefix_binding_permanent
            self._set_aside(
                error, {**{name % (exchange,): "set" for name in tables}, self.keyprefix_binding_deadlines: "zset"}
            )
            super()._queue_bind(exchange, *binding)

    def _set_aside_non_queues(self, error: ResponseError, queues: Iterable[str]) -> None:
        keys = [self._q_for_pri(queue, priority) for queue in queues for priority in self.priority_steps]
        self._set_aside(error, dict.fromkeys(keys, "list"))

    def _set_aside(self, error: ResponseError, keys: Mapping[str, str]) -> None:
        """Rename values that take the place of our keys. `keys` is {key: the type that its value should have}.

        Otherwise Redis would answer no poll of any queue, or no worker would start. The values are renamed and not
        deleted, because they belong to another program. Raises `error` if it is not about a wrong type, or if this
        process is not a worker.
        """
        if self.intake is None or "WRONGTYPE" not in str(error):
            raise error
        with self.conn_or_acquire() as client:
            for key, wanted in keys.items():
                name = key.partition(self.sep)[0]
                if (renamed := set_aside(client, key, name, wanted)) is not None:
                    kind, aside = renamed
                    self.intake.said.warning(TOLD, name, kind, aside)

    def _receive_one(self, client: Any) -> bool | None:
        if self.intake is None:
            return bool(super()._receive_one(client))
        try:
            response = client.parse_response()
        except self.connection_errors:
            self._in_listen = None
            raise
        if not isinstance(response, list | tuple):
            return None
        event = self._handle_message(client, response)
        if not bytes_to_str(event["type"]).endswith("message"):
            return None
        message = self.intake.command(event["data"])
        if message is not None:
            # A worker listens to no broadcasts except remote control.
            for queue in list(self.active_fanout_queues):
                self.connection._deliver(message, queue)
        return True

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        """Put a message that was not begun back into its queue: as the next one, or as the last one (`leftmost`)."""
        queue = message.delivery_info["routing_key"]
        with self.conn_or_acquire() as client:
            push = client.lpush if leftmost else client.rpush
            try:
                push(queue, message._raw["text"])
            except ResponseError as error:
                self._set_aside_non_queues(error, [queue])
                push(queue, message._raw["text"])

    def maybe_refresh_binding_expiry(self) -> None:
        """Do nothing in a worker, where nobody reads these tables of remote control (`_lookup`). If something else took
        their place, each refresh would log a stack. In the event loop, which would refresh every second, the timer is
        cancelled (`Transport`)."""
        if self.intake is None:
            super().maybe_refresh_binding_expiry()

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        """Return where an answer to remote control goes, by kombu's names for queues of answers. The table in Redis is
        not used, because it may have any length, and name anything."""
        if self.intake is None:
            return list(super()._lookup(exchange, routing_key, default))
        return [f"{routing_key}.{exchange}"]

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        try:
            super()._put(queue, message, **options)
        except ResponseError as error:
            if self.intake is None:
                raise
            self.intake.said.warning("an answer was not sent: Redis reported %s", str(error)[:100])

    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis was closed; a new one is made")
        params = super()._connparams(asynchronous)
        if asynchronous and self.intake is not None:
            params["parser_class"] = BoundedParser
        return params


class Transport(redis.Transport):  # type: ignore[misc]
    """The transport for addresses of Redis, after `install`."""

    Channel = Channel

    def establish_connection(self) -> Any:
        connection = super().establish_connection()
        channel = self._avail_channels[-1]  # made to check whether the server answers
        if introduce(channel.client).get("role") in REPLICAS:
            self.close_connection(connection)
            raise ConnectionError("it is a replica, which takes no messages: RECOVERY_BROKER_URL must name its primary")
        return connection

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        super().register_with_event_loop(connection, loop)
        # kombu's timer refreshes the tables of remote control, which nobody here reads (`Channel._lookup`).
        refreshing = getattr(self.cycle, "_binding_expiry_tref", None)
        if self.Channel.intake is not None and refreshing is not None:
            refreshing.cancel()


class TryingConnection(Connection):  # type: ignore[misc]
    """A connection that is made again soon after Redis is back."""

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
    """The connections of our Celery applications."""

    Connection = TryingConnection


def install() -> None:
    """Replace kombu's Redis transport in this process. Call it before the first connection."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
