"""Applying decisions again, and other steps that are taken one process at a time.

One whose records are damaged must not hold up the others: it is told in the log, and its deadline stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.exceptions import RedisError

from recovery.engine import Applied, Applier, Ended, Resources
from recovery.store.transient import is_transient

log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Applying:
    """Applies finished decisions by their ids."""

    def __init__(self, resources: Resources, applier: Applier) -> None:
        self._store = resources.store
        self._applier = applier

    def apply(self, ids: Sequence[str]) -> int:
        """Apply these decisions, as far as they and their tasks are there; how many of them had an effect."""
        tasks, decisions = self._store.tasks.get_many(ids), self._store.decisions.get_many(ids)
        ended = [
            Ended(task, decision)
            for key in ids
            # A Task that is lost may still stand in its decision.
            if (decision := decisions.get(key)) and decision.outcome and (task := tasks.get(key) or decision.task())
        ]
        changed = each(ended, lambda one: self._applier.apply([one]) in (Applied.NOW, Applied.RESTORED))
        self._applier.flush()
        return changed


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
        log.exception("could not repair %.300r; others go on", item)
        return 0


def _reraise_of_servers(error: Exception) -> None:
    if isinstance(error, RedisError) or is_transient(error):
        raise error  # the server's fault, not the record's
