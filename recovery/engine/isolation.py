"""Run a step on many records so that one damaged record does not block the others.

A failure that a record causes is logged, at most once per record in TELL_EVERY seconds, and counted. The deadline of
the record stays, so the step is tried again later. Failures of servers are raised.

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
"""Seconds between two log lines about the same record."""

_told = Seldom(logging.getLogger(__name__), TELL_EVERY)


def for_each(
    items: Iterable[Item],
    step: Callable[[Item], bool],
    name: Callable[[Item], str] = str,
    failed: Callable[[str], object] | None = None,
) -> int:
    """Run a step on each item, and return how many items the step changed.

    An item whose records are damaged does not block the others.

    Args:
        items: The items, such as decisions.
        step: Returns whether it changed the item.
        name: Returns the id of an item's record, for the log.
        failed: Called with that id if the step failed because of the record.

    Raises:
        StoreUnavailable: MongoDB failed.
        BrokerError: Redis failed.
    """
    return sum(_guarded(item, step, name(item), failed) for item in items)


def batch_or_each(
    items: Sequence[Item], step: Callable[[Sequence[Item]], int], name: Callable[[Item], str] = str
) -> int:
    """Run a step on all items at once, and return how many items it changed.

    If the step fails because of a damaged record, it is run again on each item alone. Raises StoreUnavailable or
    BrokerError if a server failed.
    """
    try:
        return step(items)
    except Exception as error:
        if is_of_servers(error):
            raise
        return sum(_guarded([item], step, name(item)) for item in items)


def _guarded(item: Item, step: Callable[[Item], int], name: str, failed: Callable[[str], object] | None = None) -> int:
    """Return the result of the step, or 0 if it failed because of a record."""
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
    """Log and count a step that failed because of a record, or because of another record of the same process. Each
    record is logged at most once in TELL_EVERY seconds. The content of the record is not logged."""
    from recovery import metrics  # imported here, because most commands count nothing and should not load its libraries

    metrics.FAILED_STEPS.inc()
    _told.warning("%s can't be processed: %s; the others go on", record, in_a_line(error), about=record)


def in_a_line(error: Exception) -> str:
    """Return the type and the message of an error in one line, cut to ERROR_LENGTH characters. The messages of our own
    store and broker errors begin with the type of the driver's error."""
    kind = "" if isinstance(error, StoreError | BrokerError) else f"{type(error).__name__}: "
    return printable(f"{kind}{' '.join(str(error).split())}"[:ERROR_LENGTH])


def is_of_servers(error: BaseException) -> bool:
    """Return whether a server caused the error, and not a record."""
    return isinstance(error, StoreUnavailable | BrokerError)
