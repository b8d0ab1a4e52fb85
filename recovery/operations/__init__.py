"""Operations: durable work that an operator orders once, and that any worker plans, applies and finishes.

An Operation record names the selected processes, the change, who ordered it and why. First the plan is made: it saves a
result for each process that needs a change, and changes no process. To apply the plan, workers go through these
results.

Both phases are divided into ranges of process ids, which workers lease (`work`). A killed worker loses only the page
that it had not committed. Each page is counted once, by a compare-and-set, and totals are counted from the results.
"""

from recovery.operations.commands import apply, cancel, find, pause, priorities_of, resume, set_rate, start
from recovery.operations.kinds import why_none
from recovery.operations.progress import Progress, Watching, progress
from recovery.operations.request import OperationRequest, rate_of, states_of
from recovery.operations.work import OperationWorker

__all__ = [
    "OperationRequest",
    "OperationWorker",
    "Progress",
    "Watching",
    "apply",
    "cancel",
    "find",
    "pause",
    "priorities_of",
    "progress",
    "rate_of",
    "resume",
    "set_rate",
    "start",
    "states_of",
    "why_none",
]
