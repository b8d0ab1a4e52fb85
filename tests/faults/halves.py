"""A batch of writes that comes to an end, or to a stop, half way.

MongoDB does the writes of a bulk one after the other, and others get in between: a primary that steps down there has
done the first ones, and who asked is told of none.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo.collection import Collection
from pymongo.results import BulkWriteResult

_thread = threading.local()


BY_KEY = ("Decisions.claim", "Graphs.apply", "Processes.finish", "Requeues.requeue_unrun")
"""Steps that take a batch as {id: something}."""


def by_half(
    name: str, step: Callable[..., Any], args: Sequence[Any], kw: dict[str, Any], between: Callable[[], None]
) -> Any:
    """Take a step, with `between` after the first half of its writes: of those for the batch that it is given, or of
    the bulk that it sends. Of a step that has neither, after all of it."""
    kinds = (dict,) if name in BY_KEY else (list, tuple)
    of = [place for place, value in enumerate(args) if type(value) in kinds and len(value) > 1]
    if of:
        before, batch, behind = args[: of[0]], args[of[0]], args[of[0] + 1 :]
        one, other = _halves(batch)
        first = step(*before, one, *behind, **kw)
        between()
        return _together(first, step(*before, other, *behind, **kw))
    with _split(between) as split:
        result = step(*args, **kw)
    if not split:
        between()
    return result


def _halves(batch: Any) -> tuple[Any, Any]:
    half = len(batch) // 2
    if isinstance(batch, dict):
        items = list(batch.items())
        return dict(items[:half]), dict(items[half:])
    return batch[:half], batch[half:]


def _together(first: Any, second: Any) -> Any:
    """What a step tells of two halves of its batch: so many, or these."""
    if first is None:
        return None
    return first | second if isinstance(first, dict | set) else first + second


@contextmanager
def _split(between: Callable[[], None]) -> Iterator[list[None]]:
    """Within, this thread's first bulk of several writes is sent in two; then what is yielded is not empty."""
    split: list[None] = []

    def once() -> None:
        _thread.between = None
        split.append(None)
        between()

    _thread.between = once
    try:
        yield split
    finally:
        _thread.between = None


def wrapped(real: Callable[..., BulkWriteResult]) -> Callable[..., BulkWriteResult]:
    """`Collection.bulk_write`, which may be split."""

    @functools.wraps(real)
    def bulk_write(collection: Collection[Any], requests: Sequence[Any], *args: Any, **kw: Any) -> BulkWriteResult:
        between = getattr(_thread, "between", None)
        if between is None or len(requests) < 2:
            return real(collection, requests, *args, **kw)
        half = len(requests) // 2
        first = real(collection, requests[:half], *args, **kw)
        between()
        return _both(first, real(collection, requests[half:], *args, **kw))

    return bulk_write


def _both(first: BulkWriteResult, second: BulkWriteResult) -> BulkWriteResult:
    """What all of a bulk would have told, of its counts."""
    one, other = first.bulk_api_result, second.bulk_api_result
    return BulkWriteResult({name: value + other[name] for name, value in one.items()}, acknowledged=True)
