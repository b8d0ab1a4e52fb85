"""Queries of the Decision records: decisions by id, and decisions that a scanner must look at.

The cost of a scanner's query depends on how many decisions are overdue or claimed, not on how many exist.
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
# The fields that rules on a single decision read. A page has a thousand decisions, so no other field is read.
_BRIEF = dict.fromkeys(
    (
        *("actor", "state", "worker", "attempts", "timeouts", "workersLost", "losses", "lostAttempt", "inBatch", "eta"),
        *("enqueuedAt", "queuedAt", "recoveryTime", "pacedTo", "epoch", "fresh"),
        "trace",  # no rule reads it; whoever requeues the task reports the requeue in this trace
        "outcome.pass",  # a decision with an outcome has ended, whatever its state says
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
"""Maximum total bytes of values that `outcomes` reads at once. Larger values are read later, once their sizes are
known.
"""


@dataclass(frozen=True, slots=True)
class Held:
    """A stored outcome, perhaps without its value."""

    outcome: Outcome
    size: int
    """Bytes of the value."""
    left_out: bool
    """Whether the value was not read."""


_NOBODY: Document = {"_id": {"$in": []}}
"""A filter that matches no record."""


@translated
class DecisionQueries:
    """Queries of the collection `decisions`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

    def get(self, decision_id: str) -> Decision | None:
        """Return the whole decision of this id (`P/T`, up to 16 MB) as the primary has it, or None. Raises
        DamagedRecord.
        """
        document = self._current.find_one({"_id": decision_id})
        return from_document(Decision, document) if document else None

    def get_committed(self, decision_id: str) -> Decision | None:
        """Return the whole decision of this id as a majority has it, or None. Raises DamagedRecord.

        For callers that show the decision to somebody.
        """
        document = self._committed.find_one({"_id": decision_id})
        return from_document(Decision, document) if document else None

    def briefs(self, decision_ids: Iterable[str]) -> dict[str, Decision]:
        """Return {id: decision} as a majority has them.

        Values, promises of values, stacks, calls and children are not read.
        """
        decisions = readable(Decision, find_keys(self._committed, decision_ids, _OUTLINE))
        return {decision.id: decision for decision in decisions}

    def queued_passes(self, decision_ids: Iterable[str]) -> dict[str, str]:
        """Return {decision: its current pass} of those that are queued, as the primary has them.

        Only messages with this pass can still be claimed.
        """
        queued = find_keys(self._current, decision_ids, {"pass": True}, {"state": DecisionState.QUEUED.value})
        return {document["_id"]: document.get("pass", "") for document in queued}

    def effects(self, decision_ids: Iterable[str]) -> dict[str, Decision]:
        """Return {id: decision} as a majority has them: with their children, without their values.

        For an apply, whose effects no failover undoes.
        """
        decisions = readable(Decision, find_keys(self._committed, decision_ids, {"outcome.value": False}))
        return {decision.id: decision for decision in decisions}

    def effect_sizes(self, decision_ids: Iterable[str]) -> dict[str, int]:
        """Return {decision: bytes that `effects` would read}, of those that exist."""
        sizes = find_keys(self._committed, decision_ids, {"size": without("outcome.value")})
        return {document["_id"]: document["size"] for document in sizes}

    def present(self, decision_ids: Iterable[str]) -> set[str]:
        """Return those of these ids that exist on the primary."""
        return {document["_id"] for document in find_keys(self._current, decision_ids, {"_id": True})}

    def states(self, decision_ids: Iterable[str]) -> dict[str, DecisionState]:
        """Return {id: state} of those that exist and have a known state, as the primary has them."""
        documents = find_keys(self._current, decision_ids, {"state": True})
        known = set(DecisionState)
        return {
            document["_id"]: DecisionState(document["state"])
            for document in documents
            if document.get("state") in known
        }

    def claims(self, decision_ids: Iterable[str]) -> dict[str, datetime]:
        """Return {decision: time of its last claim}, of those that were claimed, as the primary has them."""
        documents = find_keys(self._current, decision_ids, {"claimedAt": True})
        return {
            document["_id"]: claimed_at
            for document in documents
            if isinstance(claimed_at := document.get("claimedAt"), datetime)
        }

    def of_processes(self, process_ids: Sequence[str]) -> Iterator[tuple[str, dict[str, Decision]]]:
        """Yield (process, {task: decision}) as a majority has them, without values and arguments.

        Yields processes in the order of their ids, and skips processes without decisions. Index `_id`, one range for
        each process. Raises DamagedRecord.
        """
        if not process_ids:
            return
        ranges: Document = {"$or": [record_range(process_id) for process_id in process_ids]}
        # Without the hint MongoDB would plan each of a hundred ranges separately.
        all_decisions = map(decision_of, self._committed.find(ranges, _WITHOUT_TEXTS).hint("_id_").sort("_id", 1))
        for process_id, decisions in groupby(all_decisions, attrgetter("process_id")):
            yield process_id, {decision.task_id: decision for decision in decisions}

    def outcomes(self, decision_ids: Sequence[str]) -> dict[str, Held]:
        """Return {id: outcome} of those of these decisions that finished with a value, as a majority has them.

        An error counts as a value if the task is `fallible`. Values are included if they are small, so that all of them
        together have at most VALUES_BYTES bytes. Read the others with `values`. If a decision is missing, this waits
        for the majority to catch up with the primary, and asks once more. Raises DamagedRecord.
        """
        outcomes = self._outcomes(decision_ids)
        if missing := [key for key in decision_ids if key not in outcomes]:
            self.catch_up()
            outcomes |= self._outcomes(missing)
        return outcomes

    def known_outcomes(self, decision_ids: Sequence[str]) -> dict[str, Outcome]:
        """Return the same outcomes, but only those that can be read now with their whole value.

        Decisions that are missing, damaged or too large are left out.
        """
        if not decision_ids:
            return {}
        fields, outcomes = _held(VALUES_BYTES // len(decision_ids)), dict[str, Outcome]()
        for document in find_keys(self._committed, decision_ids, fields, _HAS_VALUE):
            with suppress(DamagedRecord):
                if not document["left"]:
                    outcomes[document["_id"]] = _outcome(document)
        return outcomes

    def _outcomes(self, decision_ids: Sequence[str]) -> dict[str, Held]:
        outcomes: dict[str, Held] = {}
        fields = _held(VALUES_BYTES // len(decision_ids))
        for document in find_keys(self._committed, decision_ids, fields, _HAS_VALUE):
            outcomes[document["_id"]] = Held(_outcome(document), document["size"], document["left"])
        return outcomes

    def parents(self, decision_ids: Sequence[str]) -> dict[str, str]:
        """Return {task: the finished task that scheduled it}, both as ids `P/T`, as a majority has them.

        Tasks without a parent are left out. Reads all decisions of their processes.
        """
        parents: dict[str, str] = {}
        for key in decision_ids:
            process_id, task = split_record_id(key)
            query = {**record_range(process_id), "state": DecisionState.FINISHED.value, "children._id": task}
            parent = self._committed.find_one(query, {"_id": True})
            if parent is not None:
                parents[key] = parent["_id"]
        return parents

    def schedules(self, decision_id: str, task: str) -> bool | None:
        """Return whether a finished decision has this task among its children, or None if it is not finished.

        Read as a majority has it.
        """
        children: Document = {"$cond": [{"$isArray": "$children"}, "$children._id", []]}
        query = {"_id": decision_id, "state": DecisionState.FINISHED.value}
        document = self._committed.find_one(query, {"scheduled": {"$in": [literal(task), children]}})
        return None if document is None else bool(document["scheduled"])

    def catch_up(self) -> None:
        """Wait until a majority has everything that the primary has now.

        Needed because for a moment after an election a new primary's committed reads may lack acknowledged writes.
        """
        # An update with a majority waits for all earlier writes, even if it matches nothing.
        self._committed.update_one(_NOBODY, {"$unset": {"recoveryTime": ""}})

    def values(self, passes: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
        """Yield (decision, its stored value) as a majority has them, of the decisions that finished.

        If a decision is missing, this waits for the majority to catch up with the primary, and asks once more.

        Args:
            passes: {decision: the pass of its outcome}. A decision whose outcome has another pass is left out.
        """
        remaining = dict(passes)
        for key, value in self._values(passes):
            del remaining[key]
            yield key, value
        if remaining:  # perhaps a new primary, which does not serve yet what was acknowledged before
            self.catch_up()
            yield from self._values(remaining)

    def _values(self, passes: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
        fields = {"outcome.value": True, "outcome.pass": True}
        for document in find_keys(self._committed, passes, fields, _HAS_VALUE):
            outcome = document.get("outcome") or {}
            if outcome.get("pass") == passes[document["_id"]]:
                yield document["_id"], outcome.get("value")

    def overdue_pages(
        self, size: int, *, within: float | None = None, since: datetime | None = None
    ) -> Iterator[Read[Decision]]:
        """Yield pages of overdue live decisions, the longest overdue first. Each page is read when it is asked for.

        Reads from the primary, with the index `deadline`. Outcomes and children are not read, because they may be
        large.

        Args:
            size: Maximum number of decisions in a page.
            within: Only decisions that fell overdue at most this many seconds ago.
            since: Only decisions whose deadline is after this moment.
        """
        query = OVERDUE if since is None else {**OVERDUE, "recoveryTime": {"$exists": True, "$gt": since}}
        if within is not None:
            lately = {"$gt": ["$recoveryTime", after(-within)]}
            query = {**query, "$expr": {"$and": [query["$expr"], lately]}}
        cursor = self._current.find(query, _BRIEF).sort("recoveryTime", 1)
        yield from (read(Decision, page, decision_of) for page in _pages(cursor, size))

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
        """Yield pages of queued tasks of an actor whose messages are lost: those queued up to `until`, the oldest
        first.

        Tasks that are overdue are left to `overdue_pages`. Reads from the primary, with the index `pending`.

        Args:
            actor: The actor.
            since: Only tasks that were queued after this moment.
            until: Only tasks that were queued up to this moment.
            size: Maximum number of decisions in a page.
            losses: A task that lost its message more often is left to its deadline ...
            patience: ... if the deadline is at most this many seconds away.

        Yields:
            The page, and the `queuedAt` of its last decision (None if it can't be read).
        """
        queued: Document = {"$lte": until} | ({"$gt": since} if since is not None else {})
        seldom_lost = {"$lte": [number_of("$losses"), losses]}
        only_waits = {"$gt": ["$recoveryTime", after(patience)]}
        waits = {"$and": [{"$gt": ["$recoveryTime", "$$NOW"]}, {"$or": [seldom_lost, only_waits]}]}
        query = {"state": DecisionState.QUEUED.value, "actor": actor, "queuedAt": queued, "$expr": waits}
        for page in _pages(self._current.find(query, _BRIEF).sort("queuedAt", 1).hint("pending"), size):
            last = page[-1].get("queuedAt")
            yield read(Decision, page, decision_of), last if isinstance(last, datetime) else None

    def without_deadline(self, limit: int) -> Read[Decision]:
        """Return live decisions that lack a deadline, from the primary. Index `deadlineMissing`, empty while all is
        well.
        """
        query = {"state": {"$in": [state.value for state in LIVE_DECISIONS]}, "recoveryTime": None}
        return read(Decision, self._current.find(query, _BRIEF).hint("deadlineMissing").limit(limit), decision_of)

    def held_by(self, workers: Sequence[str], limit: int, state: DecisionState | None = None) -> list[Decision]:
        """Return the decisions that these workers claimed, or finished and may not have applied, from the primary.

        Index `worker`. Damaged decisions are logged and left out.

        Args:
            workers: Ids of workers, for all of their pool processes, or names of single pool processes; see
                `records.ids.holder`.
            limit: Maximum number of decisions.
            state: Only decisions in this state.
        """
        ranges = [{"worker": {"$gte": name, "$lt": name + HOLDER_END}} for name in workers]
        only = {"state": state.value} if state is not None else {}
        return list(readable(Decision, self._current.find({"$or": ranges, **only}, _BRIEF).limit(limit), decision_of))


def _pages(cursor: Cursor[Document], size: int) -> Iterator[list[Document]]:
    # No `with` statement: a caller that stops early leaves this generator to the garbage collector, which may run while
    # its thread is inside pymongo. Closing the cursor would then wait for a lock that this thread holds. A cursor that
    # is dropped instead is closed later.
    cursor = cursor.batch_size(size)
    while page := cursor.to_list(size):
        yield page


def _outcome(document: Document) -> Outcome:
    """Return the outcome in a decision's document. Raises DamagedRecord, with the decision's id."""
    key, outcome = document["_id"], document.get("outcome")
    if not (isinstance(outcome, dict) and outcome):
        raise without_outcome(key)
    return from_document(Outcome, {**outcome, "_id": key})


def _held(max_size: int) -> Document:
    """Return a projection of the outcome: its value only if it has at most this many bytes, and no field that a value
    never needs.
    """
    size = size_of("outcome.value")
    fields = ("pass", "waits", "error.kind", "error.message", "error.actor")
    small_value = {"$cond": [{"$lte": [size, max_size]}, "$outcome.value", "$$REMOVE"]}
    return {
        **{f"outcome.{field}": True for field in fields},
        "outcome.value": small_value,
        "size": size,
        "left": {"$gt": [size, max_size]},
    }
