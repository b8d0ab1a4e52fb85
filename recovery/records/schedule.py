"""The Schedule record: when processes of a type are started automatically, or an operation is ordered."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum

from recovery.records.operation import Orders
from recovery.records.record import Record


class Overlap(StrEnum):
    """What happens to an occurrence while the schedule's previous instance still runs."""

    SKIP = "skip"
    QUEUE = "queue"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which missed occurrences are started later: those that became due while no scanner ran."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class SlotOutcome(StrEnum):
    """What happened to an occurrence."""

    STARTED = "started"
    SKIPPED = "skipped"
    """It was skipped because the previous instance still ran."""
    QUEUED = "queued"
    """It will be started when the previous instance has ended."""
    MISSED = "missed"
    """No scanner ran when it was due, and the schedule does not catch it up."""
    REFUSED = "refused"
    """Its process could not be started, for example because its type is disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """The settings of a schedule, as the code or an operator gives them. None: not given."""

    schedule: str | None = None
    """A crontab of five fields, or an interval such as `10m`."""
    time_zone: str | None = None
    arguments: str | None = None
    """The arguments of its processes, as the JSON text of `[positional, named]`."""
    overlap: Overlap | None = None
    catch_up: CatchUp | None = None
    catch_up_limit: int | None = None
    """Maximum number of occurrences that are caught up (`catch_up` is `all`) or queued (`overlap` is `queue`)."""
    jitter: float | None = None
    """Maximum number of seconds by which an occurrence starts after its time."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    retry_across: float | None = None
    """Seconds for which consecutive instances may fail with the same code. 0: no limit."""
    retry_across_count: int | None = None
    """How many consecutive instances may fail with the same code. 0: no limit."""

    def over(self, other: Plan) -> Plan:
        """Return the settings of this plan, and those of `other` for all that this plan does not give."""
        given = {
            plan_field.name: value
            for plan_field in fields(self)
            if (value := getattr(self, plan_field.name)) is not None
        }
        return other.evolve(**given) if given else other

    def without(self, names: tuple[str, ...]) -> Plan:
        """Return the plan without these settings."""
        return self.evolve(**dict.fromkeys(names))


DEFAULTS = Plan(
    time_zone="UTC",
    arguments="[[],{}]",
    # By default, an instance that runs longer than usual must not overlap with the next one.
    overlap=Overlap.SKIP,
    # After an outage, a nightly job should run once. A report that is due each minute need not run for each minute.
    catch_up=CatchUp.ONE,
    catch_up_limit=10,
    jitter=0.0,
    retry_across=0.0,
    retry_across_count=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotResult(Record):
    """What happened to an occurrence, or to several consecutive missed ones."""

    slot: datetime
    outcome: SlotOutcome
    reason: str | None = None
    process: str | None = None
    operation: int | None = None
    triggered: bool | None = None
    """Whether an operator triggered the occurrence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting(Record):
    """An occurrence that will be started. Its process may exist already."""

    slot: datetime
    triggered: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWord(Record):
    """A change by an operator: what was done, by whom, when and why."""

    what: str
    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled(Record):
    """The failed instance because of which the schedule starts nothing until an operator enables it."""

    process: str
    code: int
    reason: str
    at: datetime
    marker: str | None = None
    """The name of the marker for this failure. The schedule is enabled again when the marker is cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Record):
    """The key of a schedule's processes, from the type's key function.

    Only an application that has the process type can call this function. The result is stored, so that any scanner can
    start the processes.
    """

    arguments: str
    """The arguments for which the function was called."""
    key: str | None = None
    error: str | None = None
    """The error that the function raised, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing(Record):
    """The error code with which the last consecutive instances failed."""

    code: int
    since: datetime
    count: int = 1
    process: str | None = None
    """Id of the last instance that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOrders(Orders):
    """The operation that is ordered at each occurrence, and applied as soon as its plan is complete.

    An earlier version wrote and requires `why`, and knows only collections without the newer options. Both versions
    work on records with `why`. Because workers of the earlier version cannot read a record that has `reason` instead,
    they leave it alone. Otherwise they would order the operation without the options that they do not know.
    """

    reason: str | None = None
    """Why the operation is ordered; each operation gets this reason."""
    why: str | None = None
    """The reason, if an earlier version wrote the record."""
    saved: str | None = None
    """The name of the saved operation of which these orders are a copy. The copy stays if the saved operation is
    changed or removed."""

    @property
    def purpose(self) -> str:
        """Return why the operation is ordered, from `reason` or `why`."""
        return self.reason or self.why or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Record):
    """A schedule that starts processes of a type, or orders an operation, at its occurrences. `id` is its name.

    Each write increments `version` and succeeds only if the stored version is the one that was read. An occurrence is
    first recorded as `starting`, then started under its own custom id, then settled. If a worker is cut off in between,
    the next one continues, and because of the custom id it gets the same process.
    """

    id: str
    type: str
    """The process type, or `operation KIND`."""
    orders: ScheduledOrders | None = None
    """The operation to order; absent if the schedule starts processes."""
    code: Plan | None = None
    """The plan that the code declares; absent if an operator added the schedule."""
    overrides: Plan | None = None
    """The settings that an operator changed, which take precedence over `code`."""
    keyed: Keyed | None = None
    """The key of its processes. Absent until a worker that has the process type has stored it; until then, other
    workers cannot start the processes. Absent if the schedule orders operations, unless an earlier version added the
    schedule, because workers of that version ignore schedules without this field."""
    paused: OperatorWord | None = None
    disabled: Disabled | None = None
    next_slot: datetime | None = None
    """The time of the next occurrence to decide on; absent if there is none."""
    starting: Starting | None = None
    waiting: tuple[datetime, ...] = ()
    """The times of queued occurrences, which are started when the previous instance has ended."""
    last_slot: datetime | None = None
    """The time of the last occurrence that was started."""
    last_process: str | None = None
    last_operation: int | None = None
    beside: tuple[str, ...] = ()
    """Ids of earlier processes that were not known to have ended when `last_process` was started."""
    accounted: str | None = None
    """The id of the last process once its end was evaluated."""
    failing: Failing | None = None
    recent: tuple[SlotResult, ...] = ()
    """The last occurrences, newest last."""
    changes: tuple[OperatorWord, ...] = ()
    """The last changes by operators, newest last."""
    version: int = 0
    recovery_time: datetime | None = None

    @property
    def plan(self) -> Plan:
        """Return the effective plan: the operator's settings, then the code's, then the defaults."""
        code = (self.code or Plan()).over(DEFAULTS)
        return self.overrides.over(code) if self.overrides else code

    @property
    def state(self) -> str:
        """Return the state: active, paused, disabled or ended."""
        if self.disabled is not None:
            return "disabled"
        if self.paused is not None:
            return "paused"
        return "ended" if self.ended else "active"

    @property
    def ended(self) -> bool:
        """Return whether the schedule has no further occurrence, because its end is past or it has no times any
        more."""
        return self.next_slot is None and self.starting is None and not self.waiting
