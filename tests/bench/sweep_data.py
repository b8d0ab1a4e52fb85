"""A large data set for the sweep, made fast: every document comes from a record, once per shape.

A process id has 32 letters always, so the other processes of a shape are its bytes with another id in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from recovery.records import to_document
from recovery.records.ids import child_task_id, new_process_id
from recovery.settings import Settings
from recovery.store import Store, layout, schema
from tests.documents import database_of
from tests.sweep.shapes import BROKEN, Shape, finished, part, queue_statistics, running

TEMPLATE_ID = "f" * 32
_TASK = part(0).encode()
AT_ONCE = 1000
WRITERS = 2


def fill(
    settings: Settings,
    processes: int,
    every: int = 50,
    shapes: Sequence[Shape] = tuple(BROKEN),
    *,
    alike: bool = True,
) -> int:
    """Fill the database: each so many-th is broken, in each of these ways in turn (0: none), 8 % are running, the rest
    finished; how many are broken. Not `alike`: each process has a task that no other has."""
    store = Store(settings)
    layout.create(database_of(store))
    now = store.now()
    if not database_of(store)[schema.QUEUES].count_documents(
        {}
    ):  # what was queued for the first is not lost by the second
        database_of(store)[schema.QUEUES].insert_one(to_document(queue_statistics(now)))
    shares = [processes // WRITERS] * WRITERS
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        same = ([one] * WRITERS for one in (now, every, shapes, alike))
        return sum(pool.map(_write, [settings] * WRITERS, shares, *same))


def _write(settings: Settings, processes: int, now: datetime, every: int, shapes: Sequence[Shape], alike: bool) -> int:
    database = database_of(Store(settings))
    broken = itertools.cycle(shapes)
    templates: dict[Shape, list[tuple[str, bytes]]] = {
        shape: [
            (name, bson.encode(document))
            for name, documents in shape(TEMPLATE_ID, now).to_documents().items()
            for document in documents
        ]
        for shape in (finished, running, *shapes)
    }
    odd = 0
    for first in range(0, processes, AT_ONCE):
        batches: dict[str, list[Any]] = {}
        for place in range(first, min(first + AT_ONCE, processes)):
            is_odd = every > 0 and place % every == 0
            odd += is_odd
            shape = next(broken) if is_odd else running if place % 25 in (1, 2) else finished
            process_id = new_process_id().encode()
            task = _TASK if alike else child_task_id(process_id.decode(), 0, 0).encode()
            for name, template in templates[shape]:
                document = template.replace(TEMPLATE_ID.encode(), process_id).replace(_TASK, task)
                batches.setdefault(name, []).append(RawBSONDocument(document))
        for name, documents in batches.items():
            # Some of the broken ones are what the validators refuse.
            database[name].insert_many(documents, ordered=False, bypass_document_validation=True)
    return odd
