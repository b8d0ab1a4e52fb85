"""How a worker takes messages from Redis through kombu: what comes is looked at by an `Intake` before kombu reads it.

kombu keeps what is taken and not yet acknowledged in Redis as well (`unacked`), and restores it at its end or after an
hour: two round trips for each message, and a message that kills a worker kills the next one. Here it is kept in memory
alone. What a killed worker had taken is queued in MongoDB, and found as MESSAGE_LOST or by its claim's deadline; what
one that ends in order had taken and not begun is put back into its queue as it came.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from queue import Empty
from typing import Any, ClassVar

from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str

from recovery.queue.aside import set_aside
from recovery.queue.bounded import BoundedParser
from recovery.queue.driver_errors import RedisError, ResponseError
from recovery.worker.messages.intake import Intake

log = logging.getLogger(__name__)

TOLD = (
    "%s in Redis was none of ours but a %s, and is called %s now: have whoever put it there use another name, or "
    "another database of Redis; then rename or delete it"
)


class InMemory(virtual.QoS):  # type: ignore[misc]
    """What was taken and is not yet acknowledged."""

    def restore_unacked(self) -> list[Any]:
        """Put it back. What can't be is found in MongoDB: nothing is told to kombu, which would write it to a file."""
        self._flush()
        for message in reversed(self._delivered.values()):  # the first of them is the next again
            try:
                self.channel._restore(message)
            except (RedisError, OSError) as error:
                log.warning("%d messages not put back (%s): they are found missing", len(self._delivered), error)
                break
        self._delivered.clear()
        return []


class TakingChannel(redis.Channel):  # type: ignore[misc]
    """A channel that takes what `intake` makes of what comes. Without one, in a process that is no worker's, it is
    kombu's own."""

    QoS = InMemory
    intake: ClassVar[Intake | None] = None

    def _brpop_read(self, **options: Any) -> bool:
        if self.intake is None:
            return bool(super()._brpop_read(**options))
        try:
            try:
                popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            except ResponseError as error:
                self._set_aside_if_no_queue(error, self.active_queues)
                raise Empty from None
            if not popped:
                raise Empty
            queue = bytes_to_str(popped[0]).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            if queue not in self.active_queues:  # no longer consumed, since it was asked for
                self.client.rpush(queue, popped[1])
                return True
            message = self.intake.take(queue, popped[1])
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
            self._set_aside_if_no_queue(error, [queue])
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

    def _set_aside_if_no_queue(self, error: ResponseError, queues: Iterable[str]) -> None:
        keys = [self._q_for_pri(queue, priority) for queue in queues for priority in self.priority_steps]
        self._set_aside(error, dict.fromkeys(keys, "list"))

    def _set_aside(self, error: ResponseError, keys: Mapping[str, str]) -> None:
        """Rename what stands in the place of what is ours, {key: the type that it should have}: with it no poll is
        answered, of any queue, or no worker starts. It is somebody's, so nothing of it is lost. What is wrong but for
        that is raised."""
        if self.intake is None or "WRONGTYPE" not in str(error):
            raise error
        with self.conn_or_acquire() as client:
            for key, wanted in keys.items():
                name = key.partition(self.sep)[0]
                if (found := set_aside(client, key, name, wanted)) is not None:
                    kind, aside = found
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
            # A worker listens to nothing but remote control.
            for queue in list(self.active_fanout_queues):
                self.connection._deliver(message, queue)
        return True

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        """Put a message that was not begun back into its queue: where it is the next, or the last (`leftmost`)."""
        queue = message.delivery_info["routing_key"]
        with self.conn_or_acquire() as client:
            push = client.lpush if leftmost else client.rpush
            try:
                push(queue, message._raw["text"])
            except ResponseError as error:
                self._set_aside_if_no_queue(error, [queue])
                push(queue, message._raw["text"])

    def maybe_refresh_binding_expiry(self) -> None:
        """Keep the tables of remote control, which nobody here asks (`_lookup`). What stands in their place would be a
        stack in the log each time; in the event loop, where that is every second, it is not called (`transport`)."""
        if self.intake is None:
            super().maybe_refresh_binding_expiry()

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        """Where an answer to remote control goes: by the names that kombu gives to queues of answers. What the table in
        Redis says may be of any length, and name anything."""
        if self.intake is None:
            return list(super()._lookup(exchange, routing_key, default))
        return [f"{routing_key}.{exchange}"]

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        try:
            super()._put(queue, message, **options)
        except ResponseError as error:
            if self.intake is None:
                raise
            self.intake.said.warning("an answer was not sent: Redis says %s", str(error)[:100])

    def _connparams(self, asynchronous: bool = False) -> Any:
        params = super()._connparams(asynchronous)
        if asynchronous and self.intake is not None:
            params["parser_class"] = BoundedParser
        return params
