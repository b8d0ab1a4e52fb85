"""Connections to Redis, with the same settings for our own clients and for Celery in workers, beats and commands.

No connection waits for ever. A server may vanish without closing its connections, because its machine lost power or a
firewall drops packets. By default the kernel then lets a write wait for 15 minutes and a read without end. So each
connection has a time limit, and the kernel or Celery's transport probes idle connections.

With `rediss://` the server's certificate and name are verified before anything is sent to it, including the password.
kombu itself verifies nothing if the address has no options. Options in the address take precedence: `ssl_ca_certs`,
`ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname`, and `ssl_cert_reqs`, whose value `none` disables verification.

This module also translates the driver's errors into `BrokerError` (`ours`, `translated`).
"""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache
from typing import Any

from redis import Redis
from redis._parsers import Encoder, _RESP3Parser
from redis._parsers.socket import SERVER_CLOSED_CONNECTION_ERROR, SocketBuffer
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.utils import SENTINEL

from recovery import certificates
from recovery.addresses import public, told
from recovery.errors import BrokerError, SettingsError, boundary

# Includes the redis-py errors that our replacements for parts of kombu's transport catch
# (`recovery.worker.messages.transport`), because kombu passes them on unchanged.
__all__ = [
    "ANSWER_TIMEOUT",
    "MAX_BYTES",
    "Addressed",
    "BoundedParser",
    "OnePiece",
    "RedisError",
    "ResponseError",
    "celery_settings",
    "client",
    "connect",
    "ours",
    "translated",
]

ANSWER_TIMEOUT = 3.0
"""Seconds to wait for an answer. Redis needs milliseconds for what we ask. Workers wait for answers in their event
loops, one after the other, so the limit is short."""

CHECK_EVERY = 2
"""Whole seconds between two health checks of a worker's connection. Redis answers a poll within 1 s, so a dead
connection is closed within 5 s, and a connection for remote control within 8 s."""

ASK_AFTER = 5
"""Seconds that a connection of ours may be idle before its next use is preceded by a health check."""

_KEEPALIVE = {
    # An idle connection is known to be dead after 5 s, plus 2 s for each of three unanswered probes.
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    # Milliseconds that written data may stay unacknowledged. The kernel's default is 15 minutes.
    socket.TCP_USER_TIMEOUT: 10_000,
}

_SOCKETS = {
    "socket_timeout": ANSWER_TIMEOUT,
    "socket_connect_timeout": ANSWER_TIMEOUT,
    "socket_keepalive": True,
    "socket_keepalive_options": _KEEPALIVE,
}

MAX_BYTES = 16 * 1024
"""Maximum bytes of a message's text. Our messages have about 500 bytes, or 1,000 with the longest names. Parsed into
Python values a text takes up to twenty times as much memory."""
_TOO_LARGE = b" " * (MAX_BYTES + 1)


_encoder: Any = Encoder("utf-8", "strict", False)  # type: ignore[no-untyped-call]


def connect(url: str, within: float = ANSWER_TIMEOUT, **options: Any) -> Redis:
    """Return a new client of ours, which connects at its first use. Raises ValueError if the address is not valid."""
    sockets = dict(_SOCKETS, socket_connect_timeout=within, command_packer=OnePiece(), health_check_interval=ASK_AFTER)
    sockets |= options
    # No retries: redis-py would also repeat a command of which only the reply was lost.
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **sockets | {"socket_timeout": within})


def celery_settings(url: str) -> dict[str, Any]:
    """Return the settings of a Celery application whose broker is at this address."""
    return {
        "broker_url": url,
        # All of them, because if the address has options of its own, kombu would ignore these; redis-py's default is
        # the same.
        "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss:") else False,
        "broker_transport_options": {**_SOCKETS, "health_check_interval": CHECK_EVERY},
    }


@lru_cache(maxsize=8)
def client(url: str, _pid: int, within: float = ANSWER_TIMEOUT, bounded: bool = False) -> Redis:
    """Return the client of this process, `_pid`, because a connection must not be carried over a fork.

    Args:
        url: The address of Redis.
        _pid: The id of this process.
        within: Seconds to wait for a connection and for each answer.
        bounded: Whether the client discards values that are larger than a message may be.

    Raises:
        SettingsError: The address is not valid.
    """
    if (tls := certificates.of_redis(url)) is not None:
        tls.check()
    options = {}
    if bounded:
        options["parser_class"] = BoundedParser
    try:
        return connect(url, within, **options)
    except (ValueError, OSError) as error:
        raise SettingsError(f"RECOVERY_BROKER_URL={public(url)}: {told(error, url)}") from None


class Addressed:
    """Base class of objects that are stored at one Redis address."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())


def ours(error: Exception) -> BrokerError:
    """Return a driver's error as a BrokerError whose text begins with the kind of the error. `remote` translates the
    errors of Celery's remote control with it."""
    return BrokerError(f"{type(error).__name__}: {error}")


# OSError, because kombu passes on socket errors unchanged.
translated = boundary((RedisError, OSError), ours)
"""Decorator for classes that talk to Redis: makes their public methods raise BrokerError."""


class OnePiece:
    """A replacement for redis-py's command packer (`command_packer`) that packs each command into one piece.

    redis-py writes a command of a thousand messages in a hundred pieces. Each write releases the interpreter to other
    threads, which slows down a push while other threads compute.
    """

    def pack(self, *words: Any) -> list[bytes]:
        """Return a command as it is sent over the wire. If its name has several words, the server expects each as an
        argument of its own."""
        name, *arguments = words
        names = (name.encode() if isinstance(name, str) else name).split()
        parts = [
            *names,
            *(argument.encode() if type(argument) is str else _encoder.encode(argument) for argument in arguments),
        ]
        return [b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)])]


class BoundedParser(_RESP3Parser):
    """redis-py's parser for connections that take messages: it replaces a value that is longer than a message may be by
    a constant that is refused because of its length.

    A value that is popped from a queue may have half a gigabyte, and would be read completely before anybody can check
    it. redis-py has no limit of its own.
    """

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._buffer = _BoundedBuffer(connection._sock, self.socket_read_size, connection.socket_timeout)


class _BoundedBuffer(SocketBuffer):
    def read(self, length: int, timeout: float | object = SENTINEL) -> bytes:
        if length <= MAX_BYTES:
            return super().read(length, timeout)
        remaining = length + 2 - len(self._buffer.read(length + 2))  # including the end of its line
        while remaining > 0:
            self._buffer.seek(0)
            self._buffer.truncate()
            data = self._sock.recv(min(remaining, self.socket_read_size))
            if not data:
                raise ConnectionLost(SERVER_CLOSED_CONNECTION_ERROR)
            remaining -= len(data)
        return _TOO_LARGE
