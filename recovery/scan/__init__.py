"""The scanners, one per record with a deadline, all of one skeleton: find → judge → act → named result.

Celery beat nudges them; two beats, or none for an hour, lose nothing. `scanner` is the skeleton, `decisions`,
`processes` (Graph and Process scanner), `schedules` and `workers` fill it in.
"""

from recovery.scan.decisions import DecisionScanner
from recovery.scan.processes import GraphScanner, ProcessScanner
from recovery.scan.scanner import Scanner, ScanResult
from recovery.scan.schedules import ScheduleScanner
from recovery.scan.workers import WorkerScanner, rescue

__all__ = [
    "DecisionScanner",
    "GraphScanner",
    "ProcessScanner",
    "ScanResult",
    "Scanner",
    "ScheduleScanner",
    "WorkerScanner",
    "rescue",
]
