"""Which of our errors one of Redis's is above the queue. `remote` has those of Celery's remote control.

kombu's transport hands on redis-py's own: what stands in for a part of it (`recovery.worker.messages.transport`) takes
their names from here.
"""

from __future__ import annotations

from redis.exceptions import RedisError, ResponseError

from recovery.errors import BrokerError, boundary

__all__ = ["RedisError", "ResponseError", "ours", "translated"]


def ours(error: Exception) -> BrokerError:
    """The same error as one of ours, whose text says what kind it was."""
    return BrokerError(f"{type(error).__name__}: {error}")


# kombu hands on what goes wrong with its sockets as it is.
translated = boundary((RedisError, OSError), ours)
"""Decorates the class that asks Redis."""
