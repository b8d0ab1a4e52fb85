"""Operators' durable work: the Operation record, its ranges and what it found and did to each process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from recovery.records.record import Record

SEPARATOR = "/"


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


class Phase(StrEnum):
    """The two passes over the selection: each has ranges of its own."""

    PLAN = "plan"
    APPLY = "apply"


class RangeState(StrEnum):
    """How far a range is."""

    OPEN = "open"
    DONE = "done"


class ResultState(StrEnum):
    """What became of one process."""

    FOUND = "found"
    """Something is wrong with it, or something is to be done to it."""
    DONE = "done"
    NOTHING = "nothing"
    """When its turn came there was nothing to do any more."""
    CHANGED = "changed"
    """It is no longer as the plan shows it, so it was left alone."""
    ERROR = "error"


class ExportFormat(StrEnum):
    """As what the files of an export are written."""

    JSON_LINES = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(Record):
    """What was counted, of a page, a range or a whole operation: added up, never counted again."""

    processes: int = 0
    decisions: int = 0
    found: int = 0
    """Processes with something to report or to do."""
    done: int = 0
    nothing: int = 0
    changed: int = 0
    errors: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    """{rule: findings}."""
    repaired: dict[str, int] = field(default_factory=dict)
    """{rule: repairs that changed something}."""
    types: dict[str, int] = field(default_factory=dict)
    """{process type: processes with something to report or to do}."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            processes=self.processes + other.processes,
            decisions=self.decisions + other.decisions,
            found=self.found + other.found,
            done=self.done + other.done,
            nothing=self.nothing + other.nothing,
            changed=self.changed + other.changed,
            errors=self.errors + other.errors,
            rules=_added(self.rules, other.rules),
            repaired=_added(self.repaired, other.repaired),
            types=_added(self.types, other.types),
        )


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *(n for n in other if n not in one))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(Record):
    """How often a rule found something on tasks of one actor in processes of one type."""

    type: str
    rule: str
    actor: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Record):
    """Work that an operator ordered on a selection of processes. `id` is its number.

    Each change by an operator or by its progress raises `version` and names the one that it was decided from. Only the
    limiter's `free_at` is moved without.
    """

    # An empty selection is every process, and the first phase begins anew.
    ALWAYS_WRITTEN: ClassVar = frozenset({"selection", "state", "phase"})
    # One range has no cuts, and is planned; nothing was found, and it was asked.
    KEPT_WHEN_EMPTY: ClassVar = frozenset({"cuts", "sums"})

    id: int
    kind: OperationKind
    selection: str = ""
    """In the language of `recovery find`; empty: every process."""
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
    driven: bool | None = None
    """Whether this phase is left to Spark."""
    attended_at: datetime | None = None
    """When somebody was last seen at work in Spark, or about to be."""
    driver: str | None = None
    """Who drives it in Spark; others leave it to him."""
    driven_until: datetime | None = None
    """When that is over, unless he says so again."""
    parquet: str | None = None
    """Of a check or repair in Spark: the folder where its results are written when it is planned, in one of its own,
    `operation=N`."""
    parquet_checked: bool | None = None
    """Whether that is there, and ours: it was not there before."""
    parquet_written: bool | None = None
    apply_at_once: bool | None = None
    """Whether the plan is applied as soon as it is complete, without anybody having seen it."""
    priorities: dict[str, int] = field(default_factory=dict)
    """{process type: priority}: higher ones first, others have 0."""
    rate: float | None = None
    """Processes a second in all, however many work at it; absent: as fast as it goes. See `pace`."""
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
    def changes(self) -> bool:
        """Whether it changes processes, as opposed to a check."""
        return self.kind is not OperationKind.CHECK

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRange(Record):
    """A range of process ids that one worker at a time is at. `id` is `N/PHASE/LEVEL/NUMBER`.

    Who leases it writes `lease`; each page of it is one compare-and-set of `cursor` and `totals` under that lease, so
    no process is counted twice, whoever was cut off where.
    """

    ALWAYS_WRITTEN: ClassVar = frozenset({"state"})

    id: str
    operation: int
    phase: Phase
    state: RangeState = RangeState.OPEN
    priority: int = 0
    only: tuple[str, ...] = ()
    """Process types that it is for; empty: all but `but`."""
    but: tuple[str, ...] = ()
    start: str | None = None
    end: str | None = None
    cursor: str | None = None
    """The last process id that is done."""
    totals: Totals = Totals()
    lease: str | None = None
    worker: str | None = None
    leases: int = 0
    """How often it was leased: more than once where somebody was cut off."""
    error: str | None = None
    """Why it was given back the last time."""
    at: datetime | None = None
    """When it was planned."""
    recovery_time: datetime | None = None
    """When the lease is over; absent once the range is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFinding(Record):
    """What a rule found on one record."""

    rule: str
    record: str
    evidence: str
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Record):
    """How often a rule found something on tasks of one actor; without one, on what is no task's."""

    rule: str
    actor: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult(Record):
    """What an operation found and did to one process. `id` is `N/P`."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "before"})

    id: str
    operation: int
    process: str
    type: str = ""
    state: ResultState = ResultState.FOUND
    rules: tuple[str, ...] = ()
    findings: tuple[OperationFinding, ...] = ()
    """Some of them."""
    counts: dict[str, int] = field(default_factory=dict)
    """{rule: how many findings there were}."""
    tally: tuple[Tally, ...] = ()
    """The same by actor."""
    repaired: dict[str, int] = field(default_factory=dict)
    before: str = ""
    """The process as the plan saw it, `STATE/EPOCH/REOPENED`."""
    after: str | None = None
    plan: str = ""
    """What is to be done, in words."""
    begun: bool | None = None
    """Whether somebody began to do it: where he was cut off, a change may be his own."""
    error: str | None = None
    at: datetime | None = None
    """When it was found."""
    saved_at: datetime | None = None
    """When it was put into the plan; absent: whoever found it was cut off before."""
    ended_at: datetime | None = None


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


def result_id(operation: int, process_id: str) -> str:
    """The id of what an operation found on a process."""
    return f"{operation}{SEPARATOR}{process_id}"
