"""How we connect to Redis: our own clients, and Celery's of workers, beats and commands, all in the same way; and which
of our errors Redis's are above the queue.

No connection waits for ever. A server that is gone without a word (its machine lost its power, a firewall drops what
we send) resets nothing: a read or a write would wait for as long as the kernel does, which is a quarter of an hour for
a write and without end for a read. So each has a time limit, and an idle connection is probed now and then by the
kernel, or by Celery's transport.

With `rediss://` the server's certificate and name are verified before anything is sent to it, the password included.
kombu by itself verifies nothing if the address has no options. Those of the address win: `ssl_ca_certs`,
`ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname`, and `ssl_cert_reqs`, whose `none` verifies nothing.
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

# With the errors of redis-py that what stands in for a part of kombu's transport catches
# (`recovery.worker.messages.transport`): kombu hands them on as they are.
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
"""Seconds. What we ask takes Redis milliseconds, and a server that is busy with another's long script is asked again;
workers wait for it in their event loops, one answer after the other."""

CHECK_EVERY = 2
"""Whole seconds. By this much may an answer to a worker's poll be late, which Redis gives within one; a look every so
often finds it. So a connection that died is closed within five seconds, and one for remote control within eight."""

ASK_AFTER = 5
"""Seconds that a connection of ours was idle after which it is asked whether it lives, before it carries anything."""

_KEEPALIVE = {
    # An idle connection is known to be dead after five seconds, and two more for each of three unanswered probes.
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    # Milliseconds. What was written and not acknowledged for so long: the kernel by itself tries for 15 minutes.
    socket.TCP_USER_TIMEOUT: 10_000,
}

_SOCKETS = {
    "socket_timeout": ANSWER_TIMEOUT,
    "socket_connect_timeout": ANSWER_TIMEOUT,
    "socket_keepalive": True,
    "socket_keepalive_options": _KEEPALIVE,
}

MAX_BYTES = 16 * 1024
"""Of a message's text. Ours have some 500, with the longest names 1,000; Python's values take up to twenty times as
much."""
_TOO_LARGE = b" " * (MAX_BYTES + 1)


_encoder: Any = Encoder("utf-8", "strict", False)  # type: ignore[no-untyped-call]


def connect(url: str, within: float = ANSWER_TIMEOUT, **options: Any) -> Redis:
    """A client of our own, which connects when it is used. Raises ValueError for an address that can't be."""
    sockets = dict(_SOCKETS, socket_connect_timeout=within, command_packer=OnePiece(), health_check_interval=ASK_AFTER)
    sockets |= options
    # No retries: redis-py would send a command again whose reply was lost.
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **sockets | {"socket_timeout": within})


def celery_settings(url: str) -> dict[str, Any]:
    """The settings of a Celery application that has its broker at this address."""
    return {
        "broker_url": url,
        # Whole where the address has options of its own, kombu would leave these out; redis-py's default is the same.
        "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss:") else False,
        "broker_transport_options": {**_SOCKETS, "health_check_interval": CHECK_EVERY},
    }


@lru_cache(maxsize=8)
def client(url: str, _pid: int, within: float = ANSWER_TIMEOUT, bounded: bool = False) -> Redis:
    """Return the client of this process, `_pid`: a connection must not be carried over a fork. `bounded`: it reads
    nothing that is larger than a message may be."""
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
    """Something that is kept at one Redis address. A base class."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())


def ours(error: Exception) -> BrokerError:
    """Return a driver's error as one of ours, whose text says what kind it was. `remote` translates those of Celery's
    remote control."""
    return BrokerError(f"{type(error).__name__}: {error}")


# kombu hands on what goes wrong with its sockets as it is.
translated = boundary((RedisError, OSError), ours)
"""Decorates the class that asks Redis."""


class OnePiece:
    """Stands in for redis-py's packer of commands (`command_packer`): each command is one piece.

    redis-py writes a command of a thousand messages in a hundred pieces, and each write gives the interpreter to
    whichever thread wants it: a push then takes three times as long while other threads compute.
    """

    def pack(self, *words: Any) -> list[bytes]:
        """A command as it goes over the wire. Its name may be of several words, which the server wants one by one."""
        name, *rest = words
        names = (name.encode() if isinstance(name, str) else name).split()
        parts = [*names, *(one.encode() if type(one) is str else _encoder.encode(one) for one in rest)]
        return [b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)])]


class BoundedParser(_RESP3Parser):
    """redis-py's parser, for connections that take messages. A value that is longer than a message may be is replaced
    by one that is refused for its length.

    What is popped from a queue may have half a gigabyte, and is read before anybody can look at it; redis-py has no
    bound of its own.
    """

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
