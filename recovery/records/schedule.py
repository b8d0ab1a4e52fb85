"""When a process type is started by itself, or an operation ordered: the Schedule record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum

from recovery.records.operation import Orders
from recovery.records.record import Record


class Overlap(StrEnum):
    """What becomes of a slot whose schedule's previous instance still runs."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which of the slots are started that passed while nobody looked."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class SlotOutcome(StrEnum):
    """What became of a slot."""

    STARTED = "started"
    SKIPPED = "skipped"
    """The previous instance still ran."""
    QUEUED = "queued"
    """The same, and it is started when that one has ended."""
    MISSED = "missed"
    """Nobody looked when it was due, and it was not to be caught up."""
    REFUSED = "refused"
    """Its process type may not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """What can be said of a schedule, by the code or by an operator. What is None was not said."""

    schedule: str | None = None
    """A crontab of five fields, or an interval such as `10m`."""
    time_zone: str | None = None
    arguments: str | None = None
    """The JSON text of `[positional, named]`, as a process's."""
    overlap: Overlap | None = None
    catch_up: CatchUp | None = None
    catch_up_limit: int | None = None
    """How many slots at the most are caught up by `all`, and wait by `queue`."""
    jitter: float | None = None
    """Seconds by which a slot may be started later than its time."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    retry_across: float | None = None
    """Seconds for which instances may fail one after the other with the same code. 0: as long as they like."""
    retry_across_count: int | None = None
    """How many may. 0: as many as they like."""

    def over(self, other: Plan) -> Plan:
        """What is said here, and what the other says of the rest."""
        said = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        return other.evolve(**said) if said else other

    def without(self, names: tuple[str, ...]) -> Plan:
        """The same, with nothing said of these."""
        return self.evolve(**dict.fromkeys(names))


DEFAULTS = Plan(
    time_zone="UTC",
    arguments="[[],{}]",
    # What runs for longer than usual is not to be run into by the next: who wants that says so.
    overlap=Overlap.SKIP,
    # Once is what a nightly job wants after a night without servers; a report each minute is not made up for.
    catch_up=CatchUp.ONE,
    catch_up_limit=10,
    jitter=0.0,
    retry_across=0.0,
    retry_across_count=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotResult(Record):
    """What became of a slot, or of several in a row that were missed."""

    slot: datetime
    outcome: SlotOutcome
    reason: str | None = None
    process: str | None = None
    operation: int | None = None
    triggered: bool | None = None
    """By an operator, and not by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting(Record):
    """A slot that was decided to be started, and may have been or not."""

    slot: datetime
    triggered: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWord(Record):
    """What an operator did, and why."""

    what: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled(Record):
    """Why nothing is started any more until an operator enables it: the end of an instance."""

    process: str
    code: int
    reason: str
    at: datetime
    marker: str | None = None
    """The name of the marker that stands for it: once that is cleared it is enabled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Record):
    """The key that a schedule's processes have by its type's key function: only an application that has the type can
    tell, and any scanner starts them."""

    arguments: str
    """For which it was asked."""
    key: str | None = None
    error: str | None = None
    """Why it has none: what the function raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing(Record):
    """With which code the last instances failed, one after the other."""

    code: int
    since: datetime
    count: int = 1
    process: str | None = None
    """The last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOrders(Orders):
    """The operation that is ordered at each slot, and applied as soon as its plan is made.

    An earlier version wrote `why`, which it requires, and only collections without the options that came later. Its
    workers go on with such a record, and so do we. They can't read a record that has `reason` instead, so they leave it
    alone: they would order the operation without the options that they don't know.
    """

    reason: str | None = None
    """Why: it is kept with each operation."""
    why: str | None = None
    """The same, of an earlier version."""
    saved: str | None = None
    """The name of the saved operation that this is a copy of. The copy stays if that is changed or forgotten."""

    @property
    def purpose(self) -> str:
        """Why it is ordered, whichever version wrote that."""
        return self.reason or self.why or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Record):
    """A process type that is started by itself at its slots, or an operation that is ordered. `id` is its name.

    Each write raises `version` and names the one that it was decided from: whoever decided by an older one does
    nothing. A slot that is to be started is first written down (`starting`), then started under a custom id of its own,
    then settled; cut off in between, whoever looks next goes on, and the process is the same.
    """

    id: str
    type: str
    """The process type, or `operation KIND`."""
    orders: ScheduledOrders | None = None
    """Absent of one that starts processes."""
    code: Plan | None = None
    """What the code declares; absent of one that an operator added."""
    overrides: Plan | None = None
    """What an operator set over it."""
    keyed: Keyed | None = None
    """Absent until a worker that has the type has told: until then nobody else starts it. Absent as well of one that
    orders operations, unless an earlier version added it: workers of that look only at those that have it."""
    paused: OperatorWord | None = None
    disabled: Disabled | None = None
    next_slot: datetime | None = None
    """The next that is to be decided on; absent once there is none any more."""
    starting: Starting | None = None
    waiting: tuple[datetime, ...] = ()
    """Slots that are started when the previous instance has ended."""
    last_slot: datetime | None = None
    """The last that was started."""
    last_process: str | None = None
    last_operation: int | None = None
    beside: tuple[str, ...] = ()
    """Processes started before the last one whose ends were not looked at when that one was started."""
    accounted: str | None = None
    """The last process, once its end was looked at."""
    failing: Failing | None = None
    recent: tuple[SlotResult, ...] = ()
    """The last slots, the newest last."""
    changes: tuple[OperatorWord, ...] = ()
    """What operators did last, the newest last."""
    version: int = 0
    recovery_time: datetime | None = None

    @property
    def plan(self) -> Plan:
        """What holds."""
        code = (self.code or Plan()).over(DEFAULTS)
        return self.overrides.over(code) if self.overrides else code

    @property
    def state(self) -> str:
        """In one word: active, paused, disabled or ended."""
        if self.disabled is not None:
            return "disabled"
        if self.paused is not None:
            return "paused"
        return "ended" if self.ended else "active"

    @property
    def ended(self) -> bool:
        """Whether it has no slot any more: it is past its end, or nobody says any more when it is due."""
        return self.next_slot is None and self.starting is None and not self.waiting
