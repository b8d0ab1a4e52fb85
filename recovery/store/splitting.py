"""Queries and updates of many records, in parts.

A command is a document, and MongoDB takes none over 16 MB: no list of keys in a query is longer than KEYS (`batches`).
What comes back may be a thousand records of 16 MB each: if records may be large their sizes are asked for first, and
they are read in `portions`.

An update of many ends at the first record that the server can't write: one that an expression fails on, that would be
over 16 MB, or that a validator refuses which somebody made stricter. What was written before it stays written, and what
comes after it is not looked at. So the rest is written in halves, down to that one record (`update_each`): some 20
updates for one of a thousand. That record is reported and passed over. The updates repeat their whole condition, and
what is written matches no longer, or is written the same.
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
"""Keys of one query: some 75 bytes each, so a twentieth of what a command may hold."""
PORTION_BYTES = 4 * 1024 * 1024
"""Of records that are in memory at once, as MongoDB stores them; Python takes some five times as much. A single record
may be four times as large."""

POSTPONED = 60.0
"""Seconds after which a record that can't be written is looked at again. It takes a person to put it right."""
PassOver = Callable[[str], object]


def batches(items: Iterable[T], size: int = KEYS) -> Iterator[list[T]]:
    """Yield these items in lists of at most `size`."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


def find_keys(
    collection: Collection[Any], keys: Iterable[str], fields: Mapping[str, Any], also: Mapping[str, Any] = {}
) -> Iterator[dict[str, Any]]:
    """Yield these fields of the documents that have one of these keys, any number, and match `also`."""
    for batch in batches(keys):
        yield from collection.find({"_id": {"$in": batch}, **also}, fields).hint("_id_")


def portions(weights: Mapping[str, int], most: int, number: int = KEYS) -> Iterator[list[str]]:
    """Yield the keys in portions that weigh at most `most` together, or hold one heavier key, and have at most `number`
    keys."""
    portion, together = list[str](), 0
    for key, weight in weights.items():
        if portion and (together + weight > most or len(portion) >= number):
            yield portion
            portion, together = [], 0
        portion.append(key)
        together += weight
    if portion:
        yield portion


@dataclass(frozen=True, slots=True)
class Written:
    """The result of an update of many records."""

    count: int
    """How many were changed; of those that were before a record which can't be written, not all are known."""
    whole: bool = True
    """Whether there was no such record."""


def is_of_record(error: Exception) -> bool:
    """Whether it is one record's fault that an update failed: the same one on others may well be done."""
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
    """Update those of these ids that match the guard. Whichever can't be written is told, and passed over: `pass_over`
    is called with its id, or it is postponed if it is overdue.

    By their ids: left to itself the server tries the indexes of the guard's fields as well, and takes one of them for
    some batches and another one for others, at twice the cost.
    """
    count, whole = 0, True
    left = [list(ids)]
    while left:
        some = left.pop()
        try:
            if len(some) == 1:  # the driver tries it once more by itself after a lost connection
                count += collection.update_one({"_id": some[0], **guard}, stages, hint="_id_").modified_count
            else:
                count += collection.update_many({"_id": {"$in": some}, **guard}, stages, hint="_id_").modified_count
        except OperationFailure as error:
            if not is_of_record(error):
                raise
            whole = False
            if len(some) == 1:
                tell_unwritten(collection, some[0], error)
                (pass_over or (lambda key: postpone(collection, key)))(some[0])
            else:
                half = len(some) // 2
                left += [some[half:], some[:half]]
    return Written(count, whole)


def stamp_each(collection: Collection[Document], ids: Sequence[str], guard: Document, deadline: Any) -> int:
    """Give a deadline to those of these ids that match the guard, and a plain one to what can't be written: it would be
    found first for ever, as what has none. How many."""
    stages = [{"$set": {"recoveryTime": deadline}}]
    return update_each(collection, ids, guard, stages, lambda key: postpone(collection, key, missing=True)).count


def postpone(collection: Collection[Document], key: Any, *, missing: bool = False) -> None:
    """Look at a record that can't be written again later, if it is overdue; or, if `missing`, has no deadline. Past the
    validators, which may be what refuses it, and by nothing that is in it."""
    overdue: Document = {"$or": [OVERDUE, {"recoveryTime": None}]} if missing else OVERDUE
    later = [{"$set": {"recoveryTime": after(POSTPONED)}}]
    try:
        collection.update_one({"_id": key, **overdue}, later, bypass_document_validation=True)
    except OperationFailure as error:
        if not is_of_record(error):
            raise


def tell_unwritten(collection: Collection[Document], key: str, error: OperationFailure) -> None:
    """Say, now and then, that a record can't be written, and why."""
    from recovery.store.definitions import KINDS  # only where a record is refused

    kind = KINDS[collection.name].__name__
    tell(DamagedRecord(key, f"{kind} {key}: can't be changed: {' '.join(refusal(error).split())}"[:500], (), kind))
