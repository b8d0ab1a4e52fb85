"""The records and what they are made of. Pure: no driver is imported here, it runs inside Spark executors.

Four kinds describe a process: Process, Graph, Task and Decision; `Worker` describes who works. They are
frozen; a changed copy comes from `evolve()`. `codec` maps them to documents, `values` maps arguments and
results to JSON texts, `ids` makes ids, `states` names the states and says which of them are live.
"""

from recovery.records.codec import field_name, from_document, to_document
from recovery.records.failure import Failure
from recovery.records.models import (
    Call,
    Child,
    Decision,
    ErrorInfo,
    Graph,
    Interruption,
    Outcome,
    Process,
    QueueStatistics,
    Record,
    Task,
    Worker,
)
from recovery.records.preferences import ActorPreferences, ProcessTypePreferences, Stored, TaskLimit
from recovery.records.runs import ScannerRun
from recovery.records.states import LIVE_DECISIONS, DecisionState, ProcessState
from recovery.records.values import Encoded, Promise

__all__ = [
    "LIVE_DECISIONS",
    "ActorPreferences",
    "Call",
    "Child",
    "Decision",
    "DecisionState",
    "Encoded",
    "ErrorInfo",
    "Failure",
    "Graph",
    "Interruption",
    "Outcome",
    "Process",
    "ProcessState",
    "ProcessTypePreferences",
    "Promise",
    "QueueStatistics",
    "Record",
    "ScannerRun",
    "Stored",
    "Task",
    "TaskLimit",
    "Worker",
    "field_name",
    "from_document",
    "to_document",
]
