"""The records that MongoDB stores, as frozen dataclasses. No driver is imported here, so Spark executors can use them.

Four records describe a process: Process, Graph, Task and Decision. `Worker` describes a worker. `evolve()` returns a
changed copy of a record. `codec` maps records to documents, `values` maps arguments and results to JSON texts, `ids`
makes ids, and `record` defines the states and which of them are live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.records.codec import as_far_as_readable, field_name, from_document, required, shapes_of, to_document
    from recovery.records.decision import (
        PINNED,
        Decision,
        ErrorInfo,
        LostAttempt,
        Outcome,
        Refused,
        RetryCycle,
        RetryState,
        Until,
        VersionRefusal,
        forgotten,
        reset,
    )
    from recovery.records.failure import (
        Clearing,
        Failure,
        Interruption,
        Marker,
        TypeDisabled,
        marker_name,
        split_marker_name,
    )
    from recovery.records.operation import AuditEntry, Operation, OperationKind, OperationState, Orders, SavedOperation
    from recovery.records.operation_parts import (
        OperationFinding,
        OperationRange,
        OperationResult,
        Phase,
        ResultState,
        Sum,
        Tally,
        Totals,
    )
    from recovery.records.preferences import ActorPreferences, ProcessTypePreferences, Stored, TaskLimit
    from recovery.records.process import Graph, Life, Mark, Order, OrderKind, Process, RepairNote, mark_of
    from recovery.records.record import (
        ENDED_PROCESSES,
        LIVE_DECISIONS,
        UNENDED_PROCESSES,
        UNSUCCESSFUL_PROCESSES,
        UNTAKEN_DECISIONS,
        DecisionState,
        ProcessState,
        Record,
        Trace,
    )
    from recovery.records.schedule import Schedule
    from recovery.records.search_names import SavedSearch
    from recovery.records.task import Call, Child, RetryOptions, Task
    from recovery.records.values import Encoded, Promise
    from recovery.records.worker import (
        Census,
        CensusLine,
        FailingSlots,
        FreedSlots,
        HungSlot,
        LeftCounts,
        QueueStatistics,
        RejectedWrite,
        Sample,
        ScannerRun,
        Worker,
        is_same_deadline,
    )

__all__ = [
    "ENDED_PROCESSES",
    "LIVE_DECISIONS",
    "PINNED",
    "UNENDED_PROCESSES",
    "UNSUCCESSFUL_PROCESSES",
    "UNTAKEN_DECISIONS",
    "ActorPreferences",
    "AuditEntry",
    "Call",
    "Census",
    "CensusLine",
    "Child",
    "Clearing",
    "Decision",
    "DecisionState",
    "Encoded",
    "ErrorInfo",
    "FailingSlots",
    "Failure",
    "FreedSlots",
    "Graph",
    "HungSlot",
    "Interruption",
    "LeftCounts",
    "Life",
    "LostAttempt",
    "Mark",
    "Marker",
    "Operation",
    "OperationFinding",
    "OperationKind",
    "OperationRange",
    "OperationResult",
    "OperationState",
    "Order",
    "OrderKind",
    "Orders",
    "Outcome",
    "Phase",
    "Process",
    "ProcessState",
    "ProcessTypePreferences",
    "Promise",
    "QueueStatistics",
    "Record",
    "Refused",
    "RejectedWrite",
    "RepairNote",
    "ResultState",
    "RetryCycle",
    "RetryOptions",
    "RetryState",
    "Sample",
    "SavedOperation",
    "SavedSearch",
    "ScannerRun",
    "Schedule",
    "Stored",
    "Sum",
    "Tally",
    "Task",
    "TaskLimit",
    "Totals",
    "Trace",
    "TypeDisabled",
    "Until",
    "VersionRefusal",
    "Worker",
    "as_far_as_readable",
    "field_name",
    "forgotten",
    "from_document",
    "is_same_deadline",
    "mark_of",
    "marker_name",
    "required",
    "reset",
    "shapes_of",
    "split_marker_name",
    "to_document",
]

__getattr__ = exported(
    __name__,
    {
        "codec": "as_far_as_readable field_name from_document required shapes_of to_document",
        "decision": "PINNED Decision ErrorInfo LostAttempt Outcome Refused RetryCycle RetryState Until VersionRefusal "
        "forgotten reset",
        "failure": "Clearing Failure Interruption Marker TypeDisabled marker_name split_marker_name",
        "operation": "AuditEntry Operation OperationKind OperationState Orders SavedOperation",
        "operation_parts": "OperationFinding OperationRange OperationResult Phase ResultState Sum Tally Totals",
        "preferences": "ActorPreferences ProcessTypePreferences Stored TaskLimit",
        "process": "Graph Life Mark Order OrderKind Process RepairNote mark_of",
        "record": (
            "ENDED_PROCESSES LIVE_DECISIONS UNENDED_PROCESSES UNSUCCESSFUL_PROCESSES UNTAKEN_DECISIONS DecisionState "
            "ProcessState Record Trace"
        ),
        "schedule": "Schedule",
        "search_names": "SavedSearch",
        "task": "Call Child RetryOptions Task",
        "values": "Encoded Promise",
        "worker": (
            "Census CensusLine FailingSlots FreedSlots HungSlot LeftCounts QueueStatistics RejectedWrite Sample "
            "ScannerRun Worker is_same_deadline"
        ),
    },
)
