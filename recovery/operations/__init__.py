"""Operators' durable work: ordered once, planned, applied, and finished by whoever is there.

An Operation record says what is to be done to which processes, who wants it and why. Its plan is made first: a result
for each process to which something is to be done, and nothing is changed. To apply it is to go through these results.
Both passes go by ranges of process ids that are leased (`work`), so a killed worker costs what it had not committed; a
page is counted once, by a compare-and-set, and totals are counted from the results.
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
