"""Records of what operators order: `Orders` (what to do to which processes), `SavedOperation` (orders under a name),
`Operation` (the durable work that carries orders out), and `AuditEntry` (the log of what operators did)."""

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
    """Restart the failed tasks of broken processes."""
    RESTART_FROM = "restart_from"
    """Restart processes from the beginning, or from the tasks of one actor. Finished tasks run again, too."""
    ABORT = "abort"
    COLLECT = "collect"
    """Remove ended processes with all of their records."""
    SET_IDLE_TIMEOUT = "set_idle_timeout"
    """Give an idle timeout to processes that have not ended and have a different one."""


class OperationState(StrEnum):
    """The state of an operation."""

    PLANNING = "planning"
    """Workers read the processes and record what would be done to each. No process is changed."""
    PLANNED = "planned"
    """The plan is complete; an operator applies or cancels it."""
    ADMITTING = "admitting"
    """The plan is to be applied, unless another operation works on the same processes."""
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


ACTIVE = (OperationState.PLANNING, OperationState.ADMITTING, OperationState.RUNNING)
"""States in which workers work on the operation, so the record has a deadline."""
OVER = (OperationState.FINISHED, OperationState.CANCELLED)
UNDER_WAY = (*ACTIVE, OperationState.PAUSED)
"""States of an operation that will go on, now or when it is resumed."""


class ExportFormat(StrEnum):
    """The format of exported files."""

    JSON_LINES = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders(Record):
    """The orders for an operation: what it does, to which processes, and how."""

    # Because an empty selection means every process, a lost selection must not be read as an empty one.
    ALWAYS_WRITTEN: ClassVar = frozenset({"selection"})

    kind: OperationKind
    selection: str = ""
    """A search in the language of `recovery find`; empty: every process."""
    from_actor: str | None = None
    """For restart_from: restart the tasks of this actor and all tasks that depend on them; absent: restart whole
    processes."""
    export: str | None = None
    """For collect: the folder to which records are exported before they are removed."""
    export_format: ExportFormat | None = None
    """The format of the export; absent: JSON lines."""
    idle_timeout: float | None = None
    """For set_idle_timeout: the new idle timeout, in seconds."""
    thorough: bool | None = None
    """For check and repair: whether records at rest are checked for damage, too."""
    spark: bool | None = None
    """True: run in Spark; False: never run in Spark; absent: decide by the number of processes."""
    parquet: str | None = None
    """For check and repair in Spark: the folder for the results of the plan, in a subfolder `operation=N`."""
    priorities: dict[str, int] = field(default_factory=dict)
    """{process type: priority}. Higher priorities come first; other types have priority 0."""
    rate: float | None = None
    """Maximum number of processes per second, over all workers together; absent: no limit. See `pace`."""

    @property
    def changes(self) -> bool:
        """Return whether the operation changes processes; only a check does not."""
        return self.kind is not OperationKind.CHECK

    def what(self) -> dict[str, Any]:
        """Return the fields of `Orders` by name, without the fields of a subclass."""
        return {order_field.name: getattr(self, order_field.name) for order_field in fields(Orders)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOperation(Orders):
    """Orders that are saved under a name, which is `id`.

    The selection may contain saved searches. Its relative times count from when the operation is started. Each write
    increments `version` and succeeds only if the stored version is the one that was read.
    """

    id: str
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Orders):
    """Work that an operator ordered on a selection of processes. `id` is its number.

    Each change increments `version` and succeeds only if the stored version is the one that was read. The exception is
    `free_at`, which the limiter moves without a new version.
    """

    # Without its phase, a record in the second phase would be read as one in the first.
    ALWAYS_WRITTEN: ClassVar = Orders.ALWAYS_WRITTEN | {"state", "phase"}
    # Empty cuts mean that one range is planned, and empty sums that nothing was found. Absent means not known yet.
    KEPT_WHEN_EMPTY: ClassVar = frozenset({"cuts", "sums"})

    id: int
    asked_at: datetime | None = None
    """When the operation was ordered. Relative times in the selection always count from this moment."""
    who: str = ""
    why: str = ""
    origin: str = ""
    """The program and the machine from which the operation was ordered."""
    slot: str | None = None
    """For an operation that a schedule ordered: the occurrence, as `NAME@TIME`. Unique."""
    state: OperationState = OperationState.PLANNING
    version: int = 0
    driven: bool | None = None
    """Whether this phase runs in Spark."""
    attended_at: datetime | None = None
    """When a Spark driver last reported that it works on the operation or is about to."""
    driver: str | None = None
    """The holder of the lease to drive the operation in Spark."""
    driven_until: datetime | None = None
    """When the driver's lease expires unless it is renewed."""
    parquet_checked: bool | None = None
    """Whether the folder for the results was created by this operation and did not exist before."""
    parquet_written: bool | None = None
    apply_at_once: bool | None = None
    """Whether the plan is applied as soon as it is complete, without a review by an operator."""
    phase: Phase = Phase.PLAN
    cuts: tuple[str, ...] | None = None
    """Process ids that separate the ranges of this phase; absent until the ranges are planned."""
    ready: bool | None = None
    """Whether all ranges of this phase are saved."""
    free_at: datetime | None = None
    """When the limiter admits the next process."""
    planned: Totals | None = None
    """The totals of the plan; absent until the plan is complete."""
    planned_at: datetime | None = None
    """When the plan was complete. Results that a worker without a lease saves later do not belong to the plan."""
    applied: Totals | None = None
    sums: tuple[Sum, ...] = ()
    """The findings of the plan by type, rule and actor, largest count first."""
    begun_at: datetime | None = None
    """When this phase began."""
    paused_at: datetime | None = None
    paused_seconds: float = 0.0
    """Seconds for which this phase was paused, which do not count when its speed is computed."""
    ended_at: datetime | None = None
    refusal: str | None = None
    """Why the operation was not admitted at the last try."""
    recovery_time: datetime | None = None

    @property
    def is_paced(self) -> bool:
        """Return whether the rate applies in this phase. The rate limits changes, so plans are made at full speed. The
        exception is a check, which consists of its plan only."""
        return self.phase is Phase.APPLY or not self.changes

    @property
    def pace(self) -> float | None:
        """Return the rate in this phase, in processes per second; None: no limit."""
        return self.rate if self.is_paced else None

    @property
    def is_drivers(self) -> bool:
        """Return whether a Spark driver has to take the next step of the operation."""
        needs_driver = self.driven or (self.spark and self.cuts is None) or self.awaits_parquet
        return bool(needs_driver) and self.state in ACTIVE

    @property
    def awaits_parquet(self) -> bool:
        """Return whether the plan is incomplete until a Spark driver has written its results as Parquet."""
        return self.parquet is not None and not self.parquet_written and self.phase is Phase.PLAN

    @property
    def has_findings(self) -> bool:
        """Return whether rules select the processes of the plan (check and repair), not an operator."""
        return self.kind in (OperationKind.CHECK, OperationKind.REPAIR)

    def seen(self, totals: Totals) -> int:
        """Return how many processes are done in this phase: processes read while planning, processes with a result
        while applying."""
        return totals.processes if self.phase is Phase.PLAN else totals.ended

    def expected(self, processes: int | None = None) -> int | None:
        """Return how many processes this phase covers, or None if that is unknown.

        Args:
            processes: Estimated number of all processes. It is the result while all processes are planned. A selection
                is not counted before it is planned.
        """
        if self.phase is Phase.APPLY:
            return self.planned.found if self.planned else None
        return None if self.selection else processes or None

    def share(self, totals: Totals, parts: Sequence[OperationRange], processes: int | None = None) -> float:
        """Return the completed fraction of this phase, 0 to 1; `processes` is as in `expected`."""
        if (total := self.expected(processes)) is not None:
            return min(1.0, self.seen(totals) / total) if total else 1.0
        if not parts:
            return 0.0
        # All ranges have about the same size. The progress within a range is unknown and counts as one half.
        begun = sum(0.5 for part in parts if part.state is RangeState.OPEN and part.cursor is not None)
        done = sum(part.state is RangeState.DONE for part in parts)
        return min(1.0, (done + begun) / len(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Record):
    """An entry of the audit log: what an operator did, who, when, why, from where, and with which outcome."""

    id: str
    at: datetime | None = None
    what: str
    """The name of the command, for example `actor block`."""
    target: str = ""
    who: str = ""
    why: str = ""
    origin: str = ""
    details: str | None = None
    """The other options of the command, as JSON text."""
    outcome: str | None = None
    """The outcome in words; absent if the command was cut off and its effect is unknown."""
    ended_at: datetime | None = None
    operation: int | None = None
