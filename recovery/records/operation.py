"""What operators do: the Operation record, which is durable work on many processes, what it has been ordered to do
(`Orders`, which may also be saved under a name), and the AuditEntry record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from recovery.records.operation_parts import OperationRange, Phase, RangeState, Sum, Totals
from recovery.records.record import Record


class OperationKind(StrEnum):
    """What an operation does to the processes that it selects."""

    CHECK = "check"
    REPAIR = "repair"
    RESTART = "restart"
    """The failed tasks of broken processes are done again."""
    RESTART_FROM = "restart_from"
    """Processes are done again from the beginning, or from the tasks of an actor, finished ones included."""
    ABORT = "abort"
    COLLECT = "collect"
    """Processes that are over are removed, with all of their records."""
    SET_IDLE_TIMEOUT = "set_idle_timeout"
    """Processes that go on, and were started with another idle timeout, get this one."""


class OperationState(StrEnum):
    """How far an operation is."""

    PLANNING = "planning"
    """Processes are looked at, and what would be done to each is written down. Nothing is changed."""
    PLANNED = "planned"
    """The plan is complete; an operator applies or cancels it."""
    ADMITTING = "admitting"
    """To be applied, unless another operation is at the same processes."""
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


ACTIVE = (OperationState.PLANNING, OperationState.ADMITTING, OperationState.RUNNING)
"""States in which somebody is at work, so the record has a deadline."""
OVER = (OperationState.FINISHED, OperationState.CANCELLED)
UNDER_WAY = (*ACTIVE, OperationState.PAUSED)
"""States in which it is ordered to be carried out, and is not yet."""


class ExportFormat(StrEnum):
    """As what the files of an export are written."""

    JSON_LINES = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders(Record):
    """What an operation does, to which processes, and how. An operation, a saved operation and a schedule hold it."""

    # An empty selection is every process.
    ALWAYS_WRITTEN: ClassVar = frozenset({"selection"})

    kind: OperationKind
    selection: str = ""
    """In the language of `recovery find`; empty: every process."""
    from_actor: str | None = None
    """Of a restart_from: the actor whose tasks, and all that depends on them, are done again; absent: everything is."""
    export: str | None = None
    """Of a collect: the folder where what is removed is written before."""
    export_format: ExportFormat | None = None
    """As what; absent: as JSON lines."""
    idle_timeout: float | None = None
    """Of a set_idle_timeout: the new one, in seconds."""
    thorough: bool | None = None
    """Of a check or repair: whether damage is looked for in what is at rest, too."""
    spark: bool | None = None
    """Whether it is to run in Spark, or by no means; absent: by its size."""
    parquet: str | None = None
    """Of a check or repair in Spark: the folder where its results are written when it is planned, in one of its own,
    `operation=N`."""
    priorities: dict[str, int] = field(default_factory=dict)
    """{process type: priority}: higher ones first, others have 0."""
    rate: float | None = None
    """Processes a second in all, however many work at it; absent: as fast as it goes. See `pace`."""

    @property
    def changes(self) -> bool:
        """Whether it changes processes, as opposed to a check."""
        return self.kind is not OperationKind.CHECK

    def what(self) -> dict[str, Any]:
        """Return these fields by name, without those of a record that has more."""
        return {one.name: getattr(self, one.name) for one in fields(Orders)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOperation(Orders):
    """What an operation is to do, under a name that somebody gave it. `id` is that name.

    Its selection may have saved searches in it, and its relative times count from when it is started. Each write raises
    `version` and names the one that it was decided from.
    """

    id: str
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Orders):
    """Work that an operator ordered on a selection of processes. `id` is its number.

    Each change by an operator or by its progress raises `version` and names the one that it was decided from. Only the
    limiter's `free_at` is moved without.
    """

    # The first phase begins anew.
    ALWAYS_WRITTEN: ClassVar = Orders.ALWAYS_WRITTEN | {"state", "phase"}
    # One range has no cuts, and is planned; nothing was found, and it was asked.
    KEPT_WHEN_EMPTY: ClassVar = frozenset({"cuts", "sums"})

    id: int
    asked_at: datetime | None = None
    """When it was ordered: relative times in the selection count from here, however long it runs."""
    who: str = ""
    why: str = ""
    origin: str = ""
    """The program and the machine that it was ordered from."""
    slot: str | None = None
    """Of one that a schedule ordered: which slot of which, `NAME@TIME`. There is one of each."""
    state: OperationState = OperationState.PLANNING
    version: int = 0
    driven: bool | None = None
    """Whether this phase is left to Spark."""
    attended_at: datetime | None = None
    """When somebody was last seen at work in Spark, or about to be."""
    driver: str | None = None
    """Who drives it in Spark; others leave it to him."""
    driven_until: datetime | None = None
    """When that is over, unless he says so again."""
    parquet_checked: bool | None = None
    """Whether the folder of its results is there, and ours: it was not there before."""
    parquet_written: bool | None = None
    apply_at_once: bool | None = None
    """Whether the plan is applied as soon as it is complete, without anybody having seen it."""
    phase: Phase = Phase.PLAN
    cuts: tuple[str, ...] | None = None
    """Process ids at which the ranges of this phase are cut; absent until they are planned."""
    ready: bool | None = None
    """Whether all ranges of this phase are saved."""
    free_at: datetime | None = None
    """When the limiter lets the next process pass."""
    planned: Totals | None = None
    """What the plan says; absent until it is complete."""
    planned_at: datetime | None = None
    """When it was complete: what is saved from then on, by somebody who had lost his lease, is not in it."""
    applied: Totals | None = None
    sums: tuple[Sum, ...] = ()
    """What the plan found, by type, rule and actor, the largest first."""
    begun_at: datetime | None = None
    """When this phase began."""
    paused_at: datetime | None = None
    paused_seconds: float = 0.0
    """How long this phase was paused in all, so that its speed is not told too low."""
    ended_at: datetime | None = None
    refusal: str | None = None
    """Why it was not admitted the last time."""
    recovery_time: datetime | None = None

    @property
    def is_paced(self) -> bool:
        """Whether the rate holds in this phase. It is a rate of changes, so a plan is made as fast as it goes; only a
        check, which is nothing but its plan, is planned at its rate."""
        return self.phase is Phase.APPLY or not self.changes

    @property
    def pace(self) -> float | None:
        """The rate that holds in this phase; None: as fast as it goes."""
        return self.rate if self.is_paced else None

    @property
    def is_drivers(self) -> bool:
        """Whether it is for a driver of Spark to go on with."""
        waits = self.driven or (self.spark and self.cuts is None) or self.awaits_parquet
        return bool(waits) and self.state in ACTIVE

    @property
    def awaits_parquet(self) -> bool:
        """Whether its plan can't be complete before a driver of Spark has written its results."""
        return self.parquet is not None and not self.parquet_written and self.phase is Phase.PLAN

    @property
    def has_findings(self) -> bool:
        """Whether its plan is what rules found, as opposed to what an operator wants."""
        return self.kind in (OperationKind.CHECK, OperationKind.REPAIR)

    def seen(self, totals: Totals) -> int:
        """Processes that it is done with in its phase: looked at while it is planned, ended while it is applied."""
        return totals.processes if self.phase is Phase.PLAN else totals.ended

    def expected(self, processes: int | None = None) -> int | None:
        """How many processes its phase is about. While a plan of all processes is made that is about `processes`, if
        the caller knows how many there are. None while a selection is planned, because nobody has counted it."""
        if self.phase is Phase.APPLY:
            return self.planned.found if self.planned else None
        return None if self.selection else processes or None

    def share(self, totals: Totals, parts: Sequence[OperationRange], processes: int | None = None) -> float:
        """How much of its phase is done, 0 to 1; `processes` as in `expected`."""
        if (of := self.expected(processes)) is not None:
            return min(1.0, self.seen(totals) / of) if of else 1.0
        if not parts:
            return 0.0
        # Ranges are even in volume. How far a worker is in a range is not known; on average that is half of it.
        begun = sum(0.5 for part in parts if part.state is RangeState.OPEN and part.cursor is not None)
        done = sum(part.state is RangeState.DONE for part in parts)
        return min(1.0, (done + begun) / len(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """What an operator did: who, when, what, why, from where, and what came of it."""

    id: str
    at: datetime | None = None
    what: str
    """As the command is called: `actor block`."""
    target: str = ""
    who: str = ""
    why: str = ""
    origin: str = ""
    details: str | None = None
    """JSON text of what was asked for beside."""
    outcome: str | None = None
    """In words; absent if it was cut off, and nobody knows how far it came."""
    ended_at: datetime | None = None
    operation: int | None = None
