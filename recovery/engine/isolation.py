"""Steps for many records, of which one that is damaged must not hold up the others.

It is told in the log, in a line now and then, and its deadline stands. What is the servers' fault, and not a record's,
is raised.

Metrics: recovery_failed_steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from recovery.errors import BrokerError, StoreError, StoreUnavailable
from recovery.limits import ERROR_LENGTH
from recovery.log_lines import Seldom
from recovery.wording import printable

Item = TypeVar("Item")

TELL_EVERY = 300.0
"""Seconds between two lines about one record."""

_told = Seldom(logging.getLogger(__name__), TELL_EVERY)


def for_each(
    items: Iterable[Item],
    step: Callable[[Item], bool],
    name: Callable[[Item], str] = str,
    failed: Callable[[str], object] | None = None,
) -> int:
    """How many of these the step changed. One whose records are damaged does not hold up the others: it is told by its
    `name`, with which `failed` is called."""
    return sum(_guarded(item, step, name(item), failed) for item in items)


def batch_or_each(
    items: Sequence[Item], step: Callable[[Sequence[Item]], int], name: Callable[[Item], str] = str
) -> int:
    """How many of these the step changed, taken for all at once; one by one where records are damaged."""
    try:
        return step(items)
    except Exception as error:
        if is_of_servers(error):
            raise
        return sum(_guarded([item], step, name(item)) for item in items)


def _guarded(item: Item, step: Callable[[Item], int], name: str, failed: Callable[[str], object] | None = None) -> int:
    try:
        return step(item)
    except Exception as error:
        if is_of_servers(error):
            raise
        tell(name, error)
        if failed is not None:
            failed(name)
        return 0


def tell(record: str, error: Exception) -> None:
    """Say that a step failed for what this record, or one of its process, holds; once in a while for each, and count
    it. Nothing that the record holds is told."""
    from recovery import metrics  # most commands count nothing, and do without its libraries

    metrics.FAILED_STEPS.inc()
    _told.warning("%s can't be processed: %s; the others go on", record, in_a_line(error), about=record)


def in_a_line(error: Exception) -> str:
    """An error's kind and what it says; a driver's error begins with its own kind."""
    kind = "" if isinstance(error, StoreError | BrokerError) else f"{type(error).__name__}: "
    return printable(f"{kind}{' '.join(str(error).split())}"[:ERROR_LENGTH])


def is_of_servers(error: BaseException) -> bool:
    """Whether it is a server's fault, and not a record's."""
    return isinstance(error, StoreUnavailable | BrokerError)
