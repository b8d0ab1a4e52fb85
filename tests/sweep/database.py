"""A database that tests fill with processes in chosen conditions."""

from __future__ import annotations

from dataclasses import replace

from recovery.records import to_document
from recovery.records.ids import new_process_id
from recovery.retry import Backoff
from recovery.retry.own_work import SPARK_JOB
from recovery.settings import Settings
from recovery.store import Store, layout, schema
from tests.documents import database_of
from tests.sweep.shapes import Records, Shape, queue_statistics

SOON = replace(SPARK_JOB, policy=Backoff(initial=0.01, coefficient=1, jitter=(0, 0), maximum=0.01))
"""For a job that got nothing done: nobody waits."""


class Database:
    """The test's database."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings)
        layout.create(database_of(self.store))
        self.now = self.store.now()
        database_of(self.store)[schema.QUEUES].insert_one(to_document(queue_statistics(self.now)))

    def add(self, shape: Shape, process_type: str | None = None) -> str:
        """Insert a process in this condition; its id."""
        records = shape(new_process_id(), self.now)
        self.insert(records, process_type)
        return records.process.id

    def insert(self, records: Records, process_type: str | None = None) -> None:
        """Insert records as another program might have written them: the validators are not asked."""
        for name, documents in records.to_documents().items():
            for document in documents:
                if name == schema.PROCESSES and process_type is not None:
                    document["type"] = process_type
                database_of(self.store)[name].insert_one(document, bypass_document_validation=True)
