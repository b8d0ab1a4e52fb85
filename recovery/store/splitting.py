"""Queries and updates of many records, split into parts.

MongoDB accepts no command over 16 MB, so a query has at most KEYS keys (`batches`). A thousand records may have 16 MB
each, so the sizes of large records are read first, and the records then in `portions`.

An update of many records stops at the first record that the server can't write: an expression fails, the record would
exceed 16 MB, or a stricter validator refuses it. Records before it are written, records after it are not. So
`update_each` repeats the update in halves, down to the single record that fails: about 20 updates for one record of a
thousand. This record is logged and skipped. The repetition is harmless, because a written record no longer matches the
condition, or is written the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from recovery.errors import DamagedRecord
from recovery.store.client import Document
from recovery.store.driver_errors import is_denied, is_index_missing, is_transient, refusal
from recovery.store.expressions import OVERDUE, after
from recovery.store.record_reading import tell

T = TypeVar("T")

KEYS = 10_000
"""Maximum number of keys in one query. At about 75 bytes each they take a twentieth of the maximum size of a command.
"""
PORTION_BYTES = 4 * 1024 * 1024
"""Bytes of records that are held in memory at once, as MongoDB stores them. Python takes about five times as much. A
single record may be four times as large.
"""

POSTPONED = 60.0
"""Seconds after which a record that can't be written is looked at again. Only a person can repair it."""
PassOver = Callable[[str], object]
"""Handles the id of a record that can't be written."""


def batches(items: Iterable[T], size: int = KEYS) -> Iterator[list[T]]:
    """Yield these items in lists of at most `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def find_keys(
    collection: Collection[Any], keys: Iterable[str], fields: Mapping[str, Any], also: Mapping[str, Any] = {}
) -> Iterator[dict[str, Any]]:
    """Yield these fields of the documents with one of these keys that match `also`. Index `_id`.

    Any number of keys is allowed. Documents that do not exist are left out, and the order is arbitrary.
    """
    for batch in batches(keys):
        yield from collection.find({"_id": {"$in": batch}, **also}, fields).hint("_id_")


def portions(weights: Mapping[str, int], most: int, number: int = KEYS) -> Iterator[list[str]]:
    """Yield the keys in portions of at most `number` keys and a total weight of at most `most`.

    A key that is heavier than `most` is a portion of its own.
    """
    portion, total = list[str](), 0
    for key, weight in weights.items():
        if portion and (total + weight > most or len(portion) >= number):
            yield portion
            portion, total = [], 0
        portion.append(key)
        total += weight
    if portion:
        yield portion


@dataclass(frozen=True, slots=True)
class Written:
    """The result of an update of many records."""

    count: int
    """How many records were changed. Too low if a record could not be written, because the changes that precede it in
    the same update are not counted.
    """
    whole: bool = True
    """Whether every record could be written."""


def is_of_record(error: Exception) -> bool:
    """Return whether an update failed because of one record, so that other records can still be updated."""
    if not isinstance(error, OperationFailure) or is_transient(error):
        return False
    return not (is_denied(error) or is_index_missing(error))


def update_each(
    collection: Collection[Document],
    ids: Sequence[str],
    guard: Document,
    stages: Sequence[Document] | Document,
    pass_over: PassOver | None = None,
) -> Written:
    """Update those of these ids that match the guard; log and skip records that can't be written.

    Uses the concerns of `collection` and the index `_id`. Without the hint MongoDB would also try the indexes of the
    guard's fields, and choose differently from batch to batch, at twice the cost.

    Args:
        collection: The collection.
        ids: Ids of the records.
        guard: The condition of the compare-and-set, besides the id.
        stages: The update.
        pass_over: Called with the id of each record that can't be written. By default such a record is postponed, if it
            is overdue.

    Returns:
        How many records were changed, and whether all could be written.
    """
    count, whole = 0, True
    remaining = [list(ids)]
    while remaining:
        part = remaining.pop()
        try:
            if len(part) == 1:  # pymongo's `retryWrites`, if the address sets it, covers `update_one` only
                count += collection.update_one({"_id": part[0], **guard}, stages, hint="_id_").modified_count
            else:
                count += collection.update_many({"_id": {"$in": part}, **guard}, stages, hint="_id_").modified_count
        except OperationFailure as error:
            if not is_of_record(error):
                raise
            whole = False
            if len(part) == 1:
                tell_unwritten(collection, part[0], error)
                (pass_over or (lambda key: postpone(collection, key)))(part[0])
            else:
                half = len(part) // 2
                remaining += [part[half:], part[:half]]
    return Written(count, whole)


def stamp_each(collection: Collection[Document], ids: Sequence[str], guard: Document, deadline: Any) -> int:
    """Set this deadline on those of these ids that match the guard. Return how many were changed.

    A record that can't be written gets a plain deadline, because records without a deadline are looked at first, every
    time.
    """
    stages = [{"$set": {"recoveryTime": deadline}}]
    return update_each(collection, ids, guard, stages, lambda key: postpone(collection, key, missing=True)).count


def postpone(collection: Collection[Document], key: Any, *, missing: bool = False) -> None:
    """Look at a record that can't be written again after POSTPONED seconds.

    The update changes only a record that is overdue or, with `missing`, one that has no deadline. It bypasses the
    validators, which may be the reason why the record can't be written, and uses no other field of the record.
    """
    overdue: Document = {"$or": [OVERDUE, {"recoveryTime": None}]} if missing else OVERDUE
    stages = [{"$set": {"recoveryTime": after(POSTPONED)}}]
    try:
        collection.update_one({"_id": key, **overdue}, stages, bypass_document_validation=True)
    except OperationFailure as error:
        if not is_of_record(error):
            raise


def tell_unwritten(collection: Collection[Document], key: str, error: OperationFailure) -> None:
    """Log that a record can't be written, and why, at most once in TELL_EVERY seconds."""
    from recovery.store.definitions import KINDS  # imported only if a record is refused

    kind = KINDS[collection.name].__name__
    tell(DamagedRecord(key, f"{kind} {key}: can't be changed: {' '.join(refusal(error).split())}"[:500], (), kind))
