"""What is too much for one query, or for this machine's memory, in parts.

A command is a document, and MongoDB takes none over 16 MB: no list of keys in a query is longer than KEYS. What comes
back may be a thousand records of 16 MB each: where records may be large their sizes are asked for first, and they are
read in portions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from pymongo.collection import Collection

T = TypeVar("T")

KEYS = 10_000
"""Keys of one query: some 75 bytes each, so a twentieth of what a command may hold."""
PORTION_BYTES = 4 * 1024 * 1024
"""Of records that are in memory at once, as MongoDB stores them; Python takes some five times as much. A single record
may be four times as large."""


def batches(items: Iterable[T], size: int = KEYS) -> Iterator[list[T]]:
    """These, at most `size` at a time."""
    left = iter(items)
    while batch := list(islice(left, size)):
        yield batch


def find_keys(
    collection: Collection[Any], keys: Iterable[str], fields: Mapping[str, Any], also: Mapping[str, Any] = {}
) -> Iterator[dict[str, Any]]:
    """These fields of the documents of any number of keys, as far as they are there and match what is wanted `also`."""
    for batch in batches(keys):
        yield from collection.find({"_id": {"$in": batch}, **also}, fields).hint("_id_")


def portions(weights: Mapping[str, int], most: int, number: int = KEYS) -> Iterator[list[str]]:
    """{key: weight} in portions that weigh `most` together, or hold one key that is heavier; of at most so many."""
    portion, together = list[str](), 0
    for key, weight in weights.items():
        if portion and (together + weight > most or len(portion) >= number):
            yield portion
            portion, together = [], 0
        portion.append(key)
        together += weight
    if portion:
        yield portion
