"""Queries of the Decision records: of tasks by name, and of those that somebody has to look at.

The latter cost what is overdue, or held, not what exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from pymongo.collection import Collection
from pymongo.cursor import Cursor

from recovery.errors import DamagedRecord
from recovery.records import LIVE_DECISIONS, Decision, DecisionState, Outcome, from_document
from recovery.records.ids import HOLDER_END, split_record_id
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, after, literal, number_of, record_range, size_of, without
from recovery.store.record_reading import Read, decision_of, read, readable, without_outcome
from recovery.store.splitting import find_keys

WAITING, DELAYED = DecisionState.WAITING.value, DecisionState.DELAYED.value
QUEUED, WORKING = DecisionState.QUEUED.value, DecisionState.WORKING.value
FINISHED = DecisionState.FINISHED.value
# What rules on a single decision look at: a page of a thousand is read for nothing else.
_BRIEF = dict.fromkeys(
    (
        *("actor", "state", "worker", "attempts", "timeouts", "workersLost", "losses", "lostAttempt", "inBatch", "eta"),
        *("enqueuedAt", "queuedAt", "recoveryTime", "pacedTo", "epoch", "fresh"),
        "trace",  # of no rule: whoever requeues it tells of it there
        "outcome.pass",  # what has an outcome has ended, whatever its state says
    ),
    True,
)
_WITHOUT_TEXTS = dict.fromkeys(
    (
        *("outcome.value", "outcome.error.stack", "call"),
        *("children.args", "children.dependents", "children.unlocks"),
    ),
    False,
)
_OUTLINE = dict.fromkeys(("outcome.value", "outcome.waits", "outcome.error.stack", "call", "children"), False)

_HAS_VALUE: Document = {
    "state": DecisionState.FINISHED.value,
    "$or": [{"outcome.error": None}, {"fallible": True}],
}
VALUES_BYTES = 1024 * 1024
"""Of the values of a layer of promises; what they come to is known before more of them is read."""


@dataclass(frozen=True, slots=True)
class Held:
    """An outcome, the bytes that its value takes, and whether that was left out."""

    outcome: Outcome
    size: int
    left_out: bool


_NOBODY: Document = {"_id": {"$in": []}}
"""A filter that no record matches, whatever its id."""


@translated
class DecisionQueries:
    """What is asked of the collection `decisions`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

    def get(self, decision_id: str) -> Decision | None:
        """The decision of this id, `P/T`, as a whole: up to 16 MB."""
        found = self._current.find_one({"_id": decision_id})
        return from_document(Decision, found) if found else None

    def get_committed(self, decision_id: str) -> Decision | None:
        """The same as a majority has it, for whoever is told."""
        found = self._committed.find_one({"_id": decision_id})
        return from_document(Decision, found) if found else None

    def briefs(self, decision_ids: Iterable[str]) -> dict[str, Decision]:
        """The decisions that a majority has, by id, as it has them, without values and what
        these promise, children, calls and stacks."""
        found = readable(Decision, find_keys(self._committed, decision_ids, _OUTLINE))
        return {decision.id: decision for decision in found}

    def queued_passes(self, decision_ids: Iterable[str]) -> dict[str, str]:
        """{decision: the pass it is queued under}, of those that are queued: their messages are worth taking."""
        queued = find_keys(self._current, decision_ids, {"pass": True}, {"state": DecisionState.QUEUED.value})
        return {found["_id"]: found.get("pass", "") for found in queued}

    def effects(self, decision_ids: Iterable[str]) -> dict[str, Decision]:
        """The decisions that a majority has, by id, as it has them, as an apply needs them: with their children,
        without their values. What an apply begins is not undone by a failover."""
        found = readable(Decision, find_keys(self._committed, decision_ids, {"outcome.value": False}))
        return {decision.id: decision for decision in found}

    def effect_sizes(self, decision_ids: Iterable[str]) -> dict[str, int]:
        """{decision: bytes that `effects` reads of it}, of those that are there."""
        sizes = find_keys(self._committed, decision_ids, {"size": without("outcome.value")})
        return {found["_id"]: found["size"] for found in sizes}

    def present(self, decision_ids: Iterable[str]) -> set[str]:
        """The ids of those of these decisions that are there."""
        return {document["_id"] for document in find_keys(self._current, decision_ids, {"_id": True})}

    def states(self, decision_ids: Iterable[str]) -> dict[str, DecisionState]:
        """The states of the decisions that are there, by id."""
        found = find_keys(self._current, decision_ids, {"state": True})
        known = set(DecisionState)
        return {d["_id"]: DecisionState(d["state"]) for d in found if d.get("state") in known}

    def claims(self, decision_ids: Iterable[str]) -> dict[str, datetime]:
        """{decision: when the last attempt for it claimed it}, of those of which that can be read."""
        found = find_keys(self._current, decision_ids, {"claimedAt": True})
        return {one["_id"]: at for one in found if isinstance(at := one.get("claimedAt"), datetime)}

    def of_processes(self, process_ids: Sequence[str]) -> Iterator[tuple[str, dict[str, Decision]]]:
        """(process, {task: decision}) as a majority has them, without values and arguments, one process after the other
        by id; without those that have none. Index `_id`, one range for each process."""
        if not process_ids:
            return
        ranges: Document = {"$or": [record_range(process_id) for process_id in process_ids]}
        # With the hint, since without one the server plans each of a hundred ranges by itself.
        found = map(decision_of, self._committed.find(ranges, _WITHOUT_TEXTS).hint("_id_").sort("_id", 1))
        for process_id, decisions in groupby(found, attrgetter("process_id")):
            yield process_id, {decision.task_id: decision for decision in decisions}

    def outcomes(self, decision_ids: Sequence[str]) -> dict[str, Held]:
        """The outcomes of those of these decisions that are finished, by id, as a majority has them; of errors those
        that stand for a value.

        A value is read at once where it is small, so that all that are come to 1 MB; else `values` has it.
        """
        held = self._outcomes(decision_ids)
        if missing := [key for key in decision_ids if key not in held]:
            self.catch_up()
            held |= self._outcomes(missing)
        return held

    def known_outcomes(self, decision_ids: Sequence[str]) -> dict[str, Outcome]:
        """The same of those that can be read with their whole values now: what else there is, is to be asked for."""
        if not decision_ids:
            return {}
        fields, outcomes = _held(VALUES_BYTES // len(decision_ids)), dict[str, Outcome]()
        for found in find_keys(self._committed, decision_ids, fields, _HAS_VALUE):
            with suppress(DamagedRecord):
                if not found["left"]:
                    outcomes[found["_id"]] = _outcome(found)
        return outcomes

    def _outcomes(self, decision_ids: Sequence[str]) -> dict[str, Held]:
        held: dict[str, Held] = {}
        fields = _held(VALUES_BYTES // len(decision_ids))
        for found in find_keys(self._committed, decision_ids, fields, _HAS_VALUE):
            held[found["_id"]] = Held(_outcome(found), found["size"], found["left"])
        return held

    def parents(self, decision_ids: Sequence[str]) -> dict[str, str]:
        """{task: the finished task that scheduled it}, by ids `P/T`, of those that have one as a majority has it. Reads
        all decisions of their processes."""
        found: dict[str, str] = {}
        for key in decision_ids:
            process_id, task = split_record_id(key)
            query = {**record_range(process_id), "state": DecisionState.FINISHED.value, "children._id": task}
            parent = self._committed.find_one(query, {"_id": True})
            if parent is not None:
                found[key] = parent["_id"]
        return found

    def schedules(self, decision_id: str, task: str) -> bool | None:
        """Whether a finished decision, as a majority has it, has this task among its children; None without it."""
        children: Document = {"$cond": [{"$isArray": "$children"}, "$children._id", []]}
        query = {"_id": decision_id, "state": DecisionState.FINISHED.value}
        found = self._committed.find_one(query, {"scheduled": {"$in": [literal(task), children]}})
        return None if found is None else bool(found["scheduled"])

    def catch_up(self) -> None:
        """Wait until a majority has all that the primary has now. A new primary serves, for a moment, less than the one
        before it had acknowledged."""
        # An acknowledged update that matches nothing waits for all that was written before it.
        self._committed.update_one(_NOBODY, {"$unset": {"recoveryTime": ""}})

    def values(self, passes: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
        """(decision, its value as it is stored) of those of {decision: pass} that are finished by the result of that
        pass, as a majority has them."""
        left = dict(passes)
        for key, value in self._values(passes):
            del left[key]
            yield key, value
        if left:  # a new primary, perhaps, since it was known that they are there
            self.catch_up()
            yield from self._values(left)

    def _values(self, passes: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
        fields = {"outcome.value": True, "outcome.pass": True}
        for found in find_keys(self._committed, passes, fields, _HAS_VALUE):
            outcome = found.get("outcome") or {}
            if outcome.get("pass") == passes[found["_id"]]:
                yield found["_id"], outcome.get("value")

    def overdue_pages(
        self, size: int, *, within: float | None = None, since: datetime | None = None
    ) -> Iterator[Read[Decision]]:
        """Live decisions whose deadline is past, the longest first, `size` at a time: read when they are asked for, as
        they are then. Only those that fell overdue `within` so many seconds, and after `since`, if that is given.
        Index `deadline`.

        Without outcome and children, which may be large and which no rule on a single decision needs.
        """
        query = OVERDUE if since is None else {**OVERDUE, "recoveryTime": {"$exists": True, "$gt": since}}
        if within is not None:
            lately = {"$gt": ["$recoveryTime", after(-within)]}
            query = {**query, "$expr": {"$and": [query["$expr"], lately]}}
        found = self._current.find(query, _BRIEF).sort("recoveryTime", 1)
        yield from (read(Decision, page, decision_of) for page in _pages(found, size))

    def lost_pages(
        self,
        actor: str,
        since: datetime | None,
        until: datetime,
        size: int,
        *,
        losses: int,
        patience: float,
    ) -> Iterator[tuple[Read[Decision], datetime | None]]:
        """queued tasks of an actor whose messages are lost, which is what was queued up to `until`, and after `since`
        if that is given; not what is overdue anyway. Those that had more than so many `losses` are left to their
        deadlines, where these are no more than `patience` seconds off.
        With each page the `queuedAt` of its last. Index `pending`."""
        queued: Document = {"$lte": until} | ({"$gt": since} if since is not None else {})
        seldom_lost = {"$lte": [number_of("$losses"), losses]}
        only_waits = {"$gt": ["$recoveryTime", after(patience)]}
        waits = {"$and": [{"$gt": ["$recoveryTime", "$$NOW"]}, {"$or": [seldom_lost, only_waits]}]}
        query = {"state": DecisionState.QUEUED.value, "actor": actor, "queuedAt": queued, "$expr": waits}
        for page in _pages(self._current.find(query, _BRIEF).sort("queuedAt", 1).hint("pending"), size):
            last = page[-1].get("queuedAt")
            yield read(Decision, page, decision_of), last if isinstance(last, datetime) else None

    def without_deadline(self, limit: int) -> Read[Decision]:
        """Live decisions that lack a deadline. Index `deadlineMissing`, empty while all is well."""
        query = {"state": {"$in": [state.value for state in LIVE_DECISIONS]}, "recoveryTime": None}
        return read(Decision, self._current.find(query, _BRIEF).hint("deadlineMissing").limit(limit), decision_of)

    def held_by(self, workers: Sequence[str], limit: int, state: DecisionState | None = None) -> list[Decision]:
        """Decisions that these workers claimed, or finished and may not have applied. Index `worker`.

        A name is that of a worker, for all of its processes, or of one of them; see `records.ids.holder`.
        """
        ranges = [{"worker": {"$gte": name, "$lt": name + HOLDER_END}} for name in workers]
        only = {"state": state.value} if state is not None else {}
        return list(readable(Decision, self._current.find({"$or": ranges, **only}, _BRIEF).limit(limit), decision_of))


def _pages(cursor: Cursor[Document], size: int) -> Iterator[list[Document]]:
    # No `with`: whoever stops half-way leaves this generator to the garbage collector. It may run within pymongo, and a
    # cursor that is closed there waits for a lock that its own thread holds. One that is dropped is closed later.
    cursor = cursor.batch_size(size)
    while page := cursor.to_list(size):
        yield page


def _outcome(document: Document) -> Outcome:
    """The outcome of a decision's document. Raises DamagedRecord, for the decision."""
    key, found = document["_id"], document.get("outcome")
    if not (isinstance(found, dict) and found):
        raise without_outcome(key)
    return from_document(Outcome, {**found, "_id": key})


def _held(most: int) -> Document:
    """A projection: an outcome with its value if that is no larger, and without what a value never needs."""
    size = size_of("outcome.value")
    fields = ("pass", "waits", "error.kind", "error.message", "error.actor")
    small = {"$cond": [{"$lte": [size, most]}, "$outcome.value", "$$REMOVE"]}
    return {
        **{f"outcome.{field}": True for field in fields},
        "outcome.value": small,
        "size": size,
        "left": {"$gt": [size, most]},
    }
