"""Records of the parts of an operation: ranges of process ids, the result for each process, and totals."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from recovery.records.ids import SEPARATOR
from recovery.records.record import Record


class Phase(StrEnum):
    """The two passes of an operation over its selection. Each phase has its own ranges."""

    PLAN = "plan"
    APPLY = "apply"


class RangeState(StrEnum):
    """Whether a range is finished."""

    OPEN = "open"
    DONE = "done"


class ResultState(StrEnum):
    """What an operation did with one process."""

    FOUND = "found"
    """The plan contains the process, because of findings or because it matches the orders."""
    DONE = "done"
    NOTHING = "nothing"
    """Nothing was left to do when the plan was applied."""
    CHANGED = "changed"
    """The process has changed since it was planned, so the operation skipped it."""
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(Record):
    """Counts of a page, a range or a whole operation. Counts of parts are added; nothing is counted twice."""

    processes: int = 0
    decisions: int = 0
    found: int = 0
    """Processes with findings or planned changes."""
    done: int = 0
    nothing: int = 0
    changed: int = 0
    errors: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    """{rule: findings}."""
    repaired: dict[str, int] = field(default_factory=dict)
    """{rule: repairs that changed something}."""
    types: dict[str, int] = field(default_factory=dict)
    """{process type: processes with findings or planned changes}."""

    @property
    def ended(self) -> int:
        """Return the number of processes with a final result."""
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


def _added(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *(n for n in second if n not in first))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(Record):
    """The number of findings of a rule on tasks of one actor in processes of one type."""

    type: str
    rule: str
    actor: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRange(Record):
    """A range of process ids, leased by one worker at a time. `id` is `N/PHASE/LEVEL/NUMBER`.

    A worker that leases a range writes `lease`. Each page is one compare-and-set of `cursor` and `totals` under that
    lease. Because of this, no process is counted twice if a worker is cut off.
    """

    ALWAYS_WRITTEN: ClassVar = frozenset({"state"})

    id: str
    operation: int
    phase: Phase
    state: RangeState = RangeState.OPEN
    priority: int = 0
    only: tuple[str, ...] = ()
    """The process types of this range; empty: all types except those in `but`."""
    but: tuple[str, ...] = ()
    start: str | None = None
    end: str | None = None
    cursor: str | None = None
    """The last process id that is done."""
    totals: Totals = Totals()
    lease: str | None = None
    worker: str | None = None
    leases: int = 0
    """How often the range was leased; more than once if a worker was cut off."""
    error: str | None = None
    """Why a worker last released the range before its end."""
    at: datetime | None = None
    """When the range was planned."""
    recovery_time: datetime | None = None
    """When the lease expires; absent once the range is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFinding(Record):
    """A finding of a rule on one record."""

    rule: str
    record: str
    evidence: str
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(Record):
    """The number of findings of a rule in one process, on tasks of one actor. Without an actor: on other records."""

    rule: str
    actor: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult(Record):
    """What an operation found in one process and did to it. `id` is `N/P`."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "before"})

    id: str
    operation: int
    process: str
    type: str = ""
    state: ResultState = ResultState.FOUND
    rules: tuple[str, ...] = ()
    findings: tuple[OperationFinding, ...] = ()
    """Examples of the findings; `counts` has the number of all."""
    counts: dict[str, int] = field(default_factory=dict)
    """{rule: number of findings}."""
    tally: tuple[Tally, ...] = ()
    """The number of findings by rule and actor."""
    repaired: dict[str, int] = field(default_factory=dict)
    """{rule: repairs that changed something}."""
    before: str = ""
    """The process when it was planned, as `STATE/EPOCH/REOPENED`."""
    after: str | None = None
    plan: str = ""
    """What the operation will do, in words."""
    begun: bool | None = None
    """Whether a worker began to apply the plan to this process. If that worker was cut off, the process may differ from
    `before` because of this operation itself."""
    error: str | None = None
    at: datetime | None = None
    """When the process was read for the plan."""
    saved_at: datetime | None = None
    """When the result became part of the plan; absent if the worker was cut off before."""
    ended_at: datetime | None = None


def result_id(operation: int, process_id: str) -> str:
    """Return the id of an operation's result for a process."""
    return f"{operation}{SEPARATOR}{process_id}"
