"""Celery's Redis transport as workers have it: what is taken goes through an intake (`taking`), and a channel whose
connection was given up says that it lost the connection.

There kombu's own raises AttributeError, which no layer above takes for a lost connection, and the worker ends. It comes
to that where an attempt ends that was begun before Redis went away, just when Redis goes away again.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

from workers.taking import TakingChannel


class Channel(TakingChannel):
    """A channel of this transport."""

    def _connparams(self, asynchronous: bool = False) -> Any:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection to Redis was given up; another one is made")
        return super()._connparams(asynchronous)


class Transport(redis.Transport):  # type: ignore[misc]
    """What addresses of Redis stand for, once it is installed."""

    Channel = Channel


def install() -> None:
    """Take the place of kombu's own in this process. Before the first connection."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
