"""Updates that import processes from their exports.

    orders of removal → processes: marked as being removed, in a new epoch → older records removed
    → tasks, decisions, graphs → processes: mark removed (the commit point)

Until the commit point, an imported process looks like an interrupted removal, so an interrupted import is removed
again. Records of other epochs cannot interfere: neither a worker that was paused while the process was removed, nor
another import. The new epoch is the database's time in milliseconds. Therefore no epoch is used twice, however often
the process is removed and imported; redos increment the epoch by one and never reach that time.

All writes are acknowledged by a majority; all reads have read concern majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pymongo import ReplaceOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from recovery.errors import InputError
from recovery.records import OrderKind, Process, given
from recovery.records.ids import new_pass, record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import committed
from recovery.store.driver_errors import DUPLICATE_KEY, translated
from recovery.store.expressions import earlier, record_range
from recovery.store.operators.command_records import ProcessOrders
from recovery.store.record_reading import PROCESS_FIELDS, process_of
from recovery.store.views.process_exports import Whole

WITHIN = 300.0
"""Seconds in which a batch must be saved: a thousand times the usual duration. After that, a scanner removes an
interrupted import."""
SPARE = 60.0
"""Seconds before that deadline after which no process is committed. A scanner may act on an older read."""
_MARK = dict.fromkeys(("removing", "order", "recoveryTime"), "")


@translated
class Imports:
    """Updates of the collections that describe processes."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._collections = {name: committed(database[name]) for name in schema.OF_PROCESSES}
        self._processes, self._orders = self._collections[schema.PROCESSES], ProcessOrders(database[schema.ORDERS])

    def there(self, process_ids: Sequence[str]) -> dict[str, Process]:
        """Return those of these processes that exist, by id, without arguments and results. Index `_id`.

        Raises:
            DamagedRecord: A process can't be read.
        """
        documents = self._processes.find({"_id": {"$in": list(process_ids)}}, PROCESS_FIELDS)
        return {document["_id"]: process_of(document) for document in documents}

    def save(self, wholes: Sequence[Whole]) -> set[str]:
        """Save those of these processes that do not exist, each in a new epoch. Return the ids of the saved processes.

        Needs about a dozen round trips for a batch. A process whose custom id is taken keeps it only as its former
        custom id.

        Raises:
            InputError: MongoDB rejects a record, or the batch took too long and was not committed.
        """
        now, key = told_by(self._database), new_pass()
        new = {whole.id: whole.begun_anew(_epoch(whole, now)) for whole in reversed(wholes)}
        epochs = {whole.id: whole.process["epoch"] for whole in new.values()}
        self._orders.give(OrderKind.REMOVE, epochs, key, now)
        inserted = self._begin(new, key, now)
        self._clear({process_id: epochs[process_id] for process_id in inserted})
        for name, records in (
            (schema.TASKS, [task for process_id in inserted for task in new[process_id].tasks]),
            (schema.DECISIONS, [decision for process_id in inserted for decision in new[process_id].decisions]),
            (schema.GRAPHS, [graph for process_id in inserted if (graph := new[process_id].graph) is not None]),
        ):
            self._put(name, records)
        committed_ids = self._commit(inserted, key)
        missed = inserted - committed_ids
        marked = self._give_up({process_id: epochs[process_id] for process_id in missed}, key) if missed else set()
        # Skipped after an error, and for processes that are still marked: their order lets a scanner remove them.
        self._orders.fulfil(record_id(process_id, key) for process_id in epochs.keys() - marked)
        if missed:
            raise InputError(f"process {min(missed)} was not imported: it took over {WITHIN - SPARE:.0f} s to save it")
        return committed_ids

    def _begin(self, new: Mapping[str, Whole], key: str, now: datetime) -> set[str]:
        """Insert the processes, marked as being removed. Return the ids of those that were inserted."""
        mark = {"removing": True, "order": key, "recoveryTime": now + timedelta(seconds=WITHIN)}
        documents = {process_id: {**whole.process, **mark} for process_id, whole in new.items()}
        failed = self._insert(schema.PROCESSES, documents.values())
        # Only conflicts of index `customId`. A conflict of `_id` means that another import saves the same process.
        taken = {failure["op"]["_id"] for failure in failed if "customId" in failure.get("keyPattern", ())}
        for process_id in taken:
            documents[process_id]["formerCustomId"] = documents[process_id].pop("customId")
        failed_again = self._insert(schema.PROCESSES, [documents[process_id] for process_id in taken])
        failed_ids = {failure["op"]["_id"] for failure in failed} - taken | {
            failure["op"]["_id"] for failure in failed_again
        }
        return new.keys() - failed_ids

    def _clear(self, epochs: Mapping[str, int]) -> None:
        """Remove remaining records of these processes from earlier epochs, written by a worker that was paused."""
        if not epochs:
            return
        for name in (schema.DECISIONS, schema.TASKS):
            outdated = [{**record_range(process_id), **earlier(epoch)} for process_id, epoch in epochs.items()]
            self._collections[name].delete_many({"$or": outdated})
        self._collections[schema.GRAPHS].delete_many(
            {"$or": [{"_id": process_id, **earlier(epoch)} for process_id, epoch in epochs.items()]}
        )

    def _give_up(self, epochs: Mapping[str, int], key: str) -> set[str]:
        """Clean up processes that were not committed in time. Return the ids of those that still have our mark.

        A process without the mark was removed by a scanner, so the records that this import wrote are removed here. A
        marked process is removed by its order.
        """
        marked_by_us: Document = {"_id": {"$in": list(epochs)}, "removing": True, "order": key}
        marked = {document["_id"] for document in self._processes.find(marked_by_us, {"_id": True})}
        self._clear({process_id: epoch + 1 for process_id, epoch in epochs.items() if process_id not in marked})
        return marked

    def _put(self, name: str, documents: Sequence[Document]) -> None:
        """Insert records. Replace those of an earlier epoch that somebody created in the meantime."""
        failed = self._insert(name, documents)
        if failed:
            by_id = {document["_id"]: document for document in documents}
            existing = [by_id[failure["op"]["_id"]] for failure in failed]
            replacements = [
                ReplaceOne({"_id": document["_id"], **earlier(document["epoch"])}, document) for document in existing
            ]
            self._collections[name].bulk_write(replacements, ordered=False)

    def _commit(self, process_ids: Iterable[str], key: str) -> set[str]:
        """Remove the mark of processes that still have it, if their deadline is more than SPARE seconds away.

        Return the ids that matched before the update.
        """
        in_time = {"$gt": ["$recoveryTime", {"$add": ["$$NOW", 1000 * SPARE]}]}
        marked_by_us: Document = {"_id": {"$in": list(process_ids)}, "removing": True, "order": key, "$expr": in_time}
        committed_ids = {document["_id"] for document in self._processes.find(marked_by_us, {"_id": True})}
        self._processes.update_many({**marked_by_us, "_id": {"$in": list(committed_ids)}}, {"$unset": _MARK})
        return committed_ids

    def _insert(self, name: str, documents: Iterable[Document]) -> list[Document]:
        """Insert documents. Return the write errors for those whose id or custom id exists already.

        Raises:
            InputError: MongoDB rejects a document for another reason.
        """
        batch = list(documents)
        if not batch:
            return []
        try:
            self._collections[name].insert_many(batch, ordered=False)
        except BulkWriteError as error:
            failed: list[Document] = error.details["writeErrors"]
            for failure in failed:
                if failure["code"] != DUPLICATE_KEY:
                    description = f"{given.shown(failure['op']['_id'])} of {name}: MongoDB does not take it"
                    raise InputError(f"{description}: {failure.get('errmsg')}") from None
            if error.details["writeConcernErrors"]:
                raise
            return failed
        except OverflowError:
            raise InputError(f"{name}: a number has more than the 64 bits that MongoDB has for one") from None
        return []


def _epoch(whole: Whole, now: datetime) -> int:
    """Return the epoch for an imported process: higher than any epoch that it had."""
    return max(round(now.timestamp() * 1000), int(whole.process["epoch"]) + 1)
