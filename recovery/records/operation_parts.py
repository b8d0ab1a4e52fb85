"""The parts of an operation: its ranges of process ids, its result for each process, and what these add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from recovery.records.ids import SEPARATOR
from recovery.records.record import Record


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

    @property
    def ended(self) -> int:
        """Processes that are done with, in one way or another."""
        return self.done + self.nothing + self.changed + self.errors

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


def result_id(operation: int, process_id: str) -> str:
    """The id of what an operation found on a process."""
    return f"{operation}{SEPARATOR}{process_id}"
