"""What a repair changed, told by process: an operator is told of each what was done to it, and not how much in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from recovery.engine import batch_or_each, for_each
from recovery.records.ids import split_record_id

Item = TypeVar("Item")
Changed = Counter[str]
"""{process: how often something of it was changed}."""


def of_records(records: Iterable[str]) -> Changed:
    """These records were changed: processes, graphs or tasks."""
    return Counter(split_record_id(key)[0] for key in records)


def of_count(records: Iterable[str], count: int) -> Changed:
    """So many of these were. An update of many tells no more: where somebody else was first at some, which is hardly
    ever, the first ones have it."""
    return of_records(islice(records, count))


def of_each(
    items: Iterable[Item],
    step: Callable[[Item], bool],
    name: Callable[[Item], str] = str,
    failed: Callable[[str], object] | None = None,
) -> Changed:
    """Those of these that the step changed, by the `name` of their record; see `for_each`."""
    records: list[str] = []

    def take(item: Item) -> bool:
        changed = step(item)
        if changed:
            records.append(name(item))
        return changed

    for_each(items, take, name, failed)
    return of_records(records)


def of_batch(records: Sequence[str], step: Callable[[Sequence[str]], Changed]) -> Changed:
    """What a step changed of these, taken for all at once, or one by one; see `batch_or_each`."""
    changed = Changed()

    def take(some: Sequence[str]) -> int:
        done = step(some)
        changed.update(done)
        return done.total()

    batch_or_each(records, take)
    return changed
