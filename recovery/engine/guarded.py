"""Steps for many processes, of which one whose records are damaged must not hold up the others.

It is told in the log, and its deadline stands. What is the servers' fault, and not a record's, is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.exceptions import RedisError

from recovery.store.transient import is_transient

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def each(items: Iterable[Item], step: Callable[[Item], bool]) -> int:
    """How many of these the step changed. One whose records are damaged does not hold up the others."""
    return sum(_guarded(item, step) for item in items)


def together(items: Sequence[Item], step: Callable[[Sequence[Item]], int]) -> int:
    """How many of these the step changed, taken for all at once; one by one where records are damaged."""
    try:
        return step(items)
    except Exception as error:
        _reraise_of_servers(error)
        return sum(_guarded([item], step) for item in items)


def _guarded(item: Any, step: Callable[[Any], int]) -> int:
    try:
        return step(item)
    except Exception as error:
        _reraise_of_servers(error)
        log.exception("could not bring on %.300r; others go on", item)
        return 0


def _reraise_of_servers(error: Exception) -> None:
    if isinstance(error, RedisError) or is_transient(error):
        raise error  # the server's fault, not the record's
