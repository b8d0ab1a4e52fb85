"""A bound on what is read from Redis at once. What is popped from a queue may have half a gigabyte, and is read before
anybody can look at it; redis-py has no bound of its own."""

from __future__ import annotations

from typing import Any

from redis._parsers import _RESP3Parser
from redis._parsers.socket import SERVER_CLOSED_CONNECTION_ERROR, SocketBuffer
from redis.exceptions import ConnectionError as ConnectionLost
from redis.utils import SENTINEL

from recovery.queue.envelope import MAX_BYTES

_TOO_LARGE = b" " * (MAX_BYTES + 1)


class BoundedParser(_RESP3Parser):
    """redis-py's parser, for connections that take messages. In the place of a value that is longer than a message may
    be stands one that is refused for it."""

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._buffer = _BoundedBuffer(connection._sock, self.socket_read_size, connection.socket_timeout)


class _BoundedBuffer(SocketBuffer):
    def read(self, length: int, timeout: float | object = SENTINEL) -> bytes:
        if length <= MAX_BYTES:
            return super().read(length, timeout)
        left = length + 2 - len(self._buffer.read(length + 2))  # with the end of its line
        while left > 0:
            self._buffer.seek(0)
            self._buffer.truncate()
            data = self._sock.recv(min(left, self.socket_read_size))
            if not data:
                raise ConnectionLost(SERVER_CLOSED_CONNECTION_ERROR)
            left -= len(data)
        return _TOO_LARGE
