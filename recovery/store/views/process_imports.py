"""Updates that read processes back from their exports.

    order their removal → process: being removed, in an epoch that it never had → what is left of it: gone
    → tasks, decisions, graph → process: no longer being removed (the commit point)

Until the last it is what a removal that was cut off is, and so cut off anywhere it is removed again. Nothing that is of
another epoch can touch it: whoever stood still while it was removed, and makes or removes records of an earlier one, or
reads it back as well. An epoch is the database's time in milliseconds, so none comes twice, however often a process is
removed and read back; one more for each time that it is done again never reaches that.
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
"""Seconds in which a batch is saved: a thousand times what it takes. Of whoever was cut off it is removed then."""
SPARE = 60.0
"""Seconds before that deadline from which on none is saved any more: a scanner may see an older record than it is."""
_MARK = dict.fromkeys(("removing", "order", "recoveryTime"), "")


@translated
class Imports:
    """Updates over the collections of processes."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._told = {name: committed(database[name]) for name in schema.OF_PROCESSES}
        self._processes, self._orders = self._told[schema.PROCESSES], ProcessOrders(database[schema.ORDERS])

    def there(self, process_ids: Sequence[str]) -> dict[str, Process]:
        """Those of these processes that are there, briefly. Raises DamagedRecord."""
        found = self._processes.find({"_id": {"$in": list(process_ids)}}, PROCESS_FIELDS)
        return {one["_id"]: process_of(one) for one in found}

    def save(self, wholes: Sequence[Whole]) -> set[str]:
        """Save processes that are not there, each in an epoch of its own; which were not. A dozen round trips, and one
        more where a custom id is another's by now: such a process comes without it. Raises InputError for what MongoDB
        does not take."""
        now, key = told_by(self._database), new_pass()
        new = {one.id: one.begun_anew(_epoch(one, now)) for one in reversed(wholes)}
        epochs = {one.id: one.process["epoch"] for one in new.values()}
        self._orders.give(OrderKind.REMOVE, epochs, key, now)
        ours = self._begin(new, key, now)
        self._clear({one: epochs[one] for one in ours})
        for name, records in (
            (schema.TASKS, [task for one in ours for task in new[one].tasks]),
            (schema.DECISIONS, [decision for one in ours for decision in new[one].decisions]),
            (schema.GRAPHS, [graph for one in ours if (graph := new[one].graph) is not None]),
        ):
            self._put(name, records)
        done = self._commit(ours, key)
        late = ours - done
        marked = self._give_up({one: epochs[one] for one in late}, key) if late else set()
        # Not after an error, and not of what is marked: by its order what was begun is removed.
        self._orders.fulfil(record_id(one, key) for one in epochs.keys() - marked)
        if late:
            raise InputError(
                f"process {min(late)} was not brought back: it took over {WITHIN - SPARE:.0f} s to save it"
            )
        return done

    def _begin(self, new: Mapping[str, Whole], key: str, now: datetime) -> set[str]:
        """Save the processes, as being removed; those that are not somebody else's."""
        mark = {"removing": True, "order": key, "recoveryTime": now + timedelta(seconds=WITHIN)}
        documents = {one: {**whole.process, **mark} for one, whole in new.items()}
        failed = self._insert(schema.PROCESSES, documents.values())
        # By its index: of a process that somebody else reads back just now the key is there.
        taken = {failure["op"]["_id"] for failure in failed if "customId" in failure.get("keyPattern", ())}
        for one in taken:
            documents[one]["formerCustomId"] = documents[one].pop("customId")
        again = self._insert(schema.PROCESSES, [documents[one] for one in taken])
        lost = {failure["op"]["_id"] for failure in failed} - taken | {failure["op"]["_id"] for failure in again}
        return new.keys() - lost

    def _clear(self, epochs: Mapping[str, int]) -> None:
        """Remove what is left of these processes, of epochs before these: of somebody who stood still while they were
        removed."""
        if not epochs:
            return
        for name in (schema.DECISIONS, schema.TASKS):
            left = [{**record_range(key), **earlier(epoch)} for key, epoch in epochs.items()]
            self._told[name].delete_many({"$or": left})
        self._told[schema.GRAPHS].delete_many(
            {"$or": [{"_id": key, **earlier(epoch)} for key, epoch in epochs.items()]}
        )

    def _give_up(self, epochs: Mapping[str, int], key: str) -> set[str]:
        """Remove what was put of processes that were not saved in time, and that are removed by now; those that are to
        be, by an order that stands."""
        mine: Document = {"_id": {"$in": list(epochs)}, "removing": True, "order": key}
        marked = {one["_id"] for one in self._processes.find(mine, {"_id": True})}
        self._clear({one: epoch + 1 for one, epoch in epochs.items() if one not in marked})
        return marked

    def _put(self, name: str, documents: Sequence[Document]) -> None:
        """Save records, in place of what somebody made since."""
        failed = self._insert(name, documents)
        if failed:
            by_id = {one["_id"]: one for one in documents}
            late = [by_id[failure["op"]["_id"]] for failure in failed]
            puts = [ReplaceOne({"_id": one["_id"], **earlier(one["epoch"])}, one) for one in late]
            self._told[name].bulk_write(puts, ordered=False)

    def _commit(self, ours: Iterable[str], key: str) -> set[str]:
        """No longer being removed, of those of these that nobody has begun to remove: long before their deadline."""
        in_time = {"$gt": ["$recoveryTime", {"$add": ["$$NOW", 1000 * SPARE]}]}
        mine: Document = {"_id": {"$in": list(ours)}, "removing": True, "order": key, "$expr": in_time}
        done = {one["_id"] for one in self._processes.find(mine, {"_id": True})}
        self._processes.update_many({**mine, "_id": {"$in": list(done)}}, {"$unset": _MARK})
        return done

    def _insert(self, name: str, documents: Iterable[Document]) -> list[Document]:
        """Insert what is missing; what was refused since it, or its custom id, is there."""
        some = list(documents)
        if not some:
            return []
        try:
            self._told[name].insert_many(some, ordered=False)
        except BulkWriteError as error:
            failed: list[Document] = error.details["writeErrors"]
            for failure in failed:
                if failure["code"] != DUPLICATE_KEY:
                    told = f"{given.shown(failure['op']['_id'])} of {name}: MongoDB does not take it"
                    raise InputError(f"{told}: {failure.get('errmsg')}") from None
            if error.details["writeConcernErrors"]:
                raise
            return failed
        except OverflowError:
            raise InputError(f"{name}: a number has more than the 64 bits that MongoDB has for one") from None
        return []


def _epoch(whole: Whole, now: datetime) -> int:
    """The epoch that a process is read back in: later than any that it had."""
    return max(round(now.timestamp() * 1000), int(whole.process["epoch"]) + 1)
